"""Four incidents, mended in the browser alone: the clicks of docs/guide/console-incidents.md.

Each has a worker in trouble; what the clicks do is looked up in Kafka. With the option
`--pictures docs/images` the walks make the pictures of the guide.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from ackfloor.core.records.envelope import read_envelope
from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.roles import Role
from tests.browser.dead_letters import console_with_index
from tests.browser.walk import Walk
from tests.browser.window import Look
from tests.e2e.stage import Stage, ready
from tests.framework.cli.command import Running
from tests.framework.kafka.wire import committed_records, until
from tests.structure.sources import REPOSITORY

pytestmark = pytest.mark.kafka

GUIDE = REPOSITORY / "docs" / "guide" / "console-incidents.md"
#: Fewer clicks than these.
MOST_CLICKS = 10
POISON = 10_000
#: Milliseconds that a job over all of them has on a busy machine.
JOB_MS = 300_000
#: Payments that are as they should be, one after so many others: nothing fails altogether.
GOOD_EVERY = 5

STUCK_APP = """
app = App("GROUP")


@app.handler("TOPIC", ordering="key", retry=RetryPolicy.fixed("10m", None))
async def bill(delivery: Delivery) -> None:
    if delivery.value == b'{"article": 4711}':
        raise LookupError("no price for article 4711")
    note(handled, delivery)
"""
HANGING_APP = """
app = App("GROUP")


async def answer_of_the_bank() -> None:
    # The other end is gone, and has not said so.
    await asyncio.Event().wait()


@app.handler("TOPIC", ordering="key", consume_timeout="30m", retry=RetryPolicy.fixed("1s"))
async def refund(delivery: Delivery) -> None:
    if delivery.value == b'{"refund": 4711}' and delivery.attempt == 1:
        await answer_of_the_bank()
    note(handled, delivery)
"""
POISON_APP = """
app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy.fixed("1s"), dead_letter_on=(AttributeError,))
async def charge(delivery: Delivery) -> None:
    if b"coupon" in delivery.value and os.environ["ACKFLOOR_RELEASE"] == "2.4.0":
        raise AttributeError("'Coupon' object has no attribute 'rate'")
    note(handled, delivery)
"""
DEAD_APP = """
app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy.fixed("10m"))
async def ship(delivery: Delivery) -> None:
    if not opened("gate"):
        raise ConnectionError("warehouse.internal:443: connection refused")
    note(handled, delivery)
"""

Begin = Callable[..., "Incident"]


class Incident:
    """A worker in trouble, and somebody who looks at it in a browser."""

    def __init__(self, stage: Stage, topic: str, release: str, pictures: Path | None) -> None:
        self.stage = stage
        self.run = stage.run(ACKFLOOR_RELEASE=release)
        self.run.until(ready(self.run), "ready")
        self.listen = self.run.logged("metrics and health on ").rpartition("http://")[2]
        self.names = {
            stage.topic: topic,
            stage.group: "shop",
            self.listen: "127.0.0.1:9600",
            f"{stage.folder}/stage_app.py": "/app/shop.py",
            operator(): "ann@ops-1",
            sysconfig.get_paths()["stdlib"]: "/usr/lib/python3.11",
        }
        self._pictures = pictures

    def release(self, release: str) -> Running:
        """Somebody rolls out another release."""
        self.run.close()
        self.run = self.stage.run(ACKFLOOR_RELEASE=release, ACKFLOOR_RUN_LISTEN=self.listen)
        self.run.until(ready(self.run), "ready")
        return self.run

    @contextmanager
    def walk(self, look: Look, folder: Path, role: Role = Role.operator) -> Iterator[Walk]:
        """Begin on the first page of a console."""
        more: dict[str, Any] = {"token_files": {self.listen: self.token()}, "role": role}
        with console_with_index(self.stage.servers, folder, self.listen, **more) as console:
            window = look(console.home, height=400, locale="en-GB", timezone_id="UTC")
            window.open("/")
            yield Walk(window, self.names, self._pictures)
            window.clean()

    def token(self) -> Path:
        """The file with the run's token, which is beside its app here."""
        [file] = self.stage.folder.glob("ackfloor/run-*.token")
        return file


@pytest.fixture
def begin(
    make_stage: Callable[..., Stage],
    broker: str,
    pictures: Path | None,
) -> Begin:
    """Starts the worker of an incident."""
    del broker  # in the environment

    def begun(app: str, topic: str, release: str = "2.4.0") -> Incident:
        return Incident(make_stage(app, partitions=1), topic, release, pictures)

    return begun


def told(heading: str) -> list[str]:
    """What the guide has one click on, in the order of its steps."""
    text = GUIDE.read_text()
    _, _, section = text.partition(f"\n## {heading}\n")
    assert section, heading
    return re.findall(r"\*\*(.+?)\*\*", section.partition("\n## ")[0].replace("\n", " "))


def as_told(walk: Walk, heading: str) -> None:
    """The walk was that of the guide, and is short."""
    assert walk.clicked == told(heading)
    assert len(walk.clicked) < MOST_CLICKS


def test_a_stuck_record(begin: Begin, look: Look, tmp_path: Path) -> None:
    """It is found, dead-lettered, and what waited behind it is handled."""
    incident = begin(STUCK_APP, "orders")
    stage = incident.stage
    stage.produce(1, b'{"article": 4711}', key=b"customer-7")
    stage.produce(40, b'{"article": 12}', key=b"customer-7")
    stage.produce(60, b'{"article": 12}', key=b"customer-8")
    until(lambda: stage.records() == 60)
    with incident.walk(look, tmp_path) as walk:
        page = walk.page
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("1 blocked lane, 40 records behind")
        groups = page.get_by_role("table").filter(has_text="Members")
        expect(groups.get_by_role("row", name=stage.group)).to_contain_text("41")
        walk.picture("incident-stuck", wrong)
        walk.click(wrong.get_by_role("link", name="Lanes"))
        walk.click(page.get_by_role("link", name=f"{stage.topic}/0/0", exact=True))
        expect(page.get_by_text("40 wait behind it")).to_be_visible()
        cells = page.locator(".ack-map i.settled")
        expect(cells).to_have_count(60)
        walk.picture("incident-stuck-floor", page.locator(".legend"))
        walk.click(page.locator("p.next").get_by_role("link", name="Lanes"))
        walk.click(page.get_by_role("checkbox", name=f"Choose {stage.topic}/0/0"))
        walk.click(page.get_by_role("button", name="Dead-letter"))
        expect(page.get_by_text("the head of 1 lane")).to_be_visible()
        walk.write(page.get_by_label("Why"), "no such article, INC-17")
        walk.picture("incident-stuck-confirm")
        walk.click(page.get_by_role("button", name="Do it"))
        expect(page.get_by_role("heading", name="What was done")).to_be_visible()
        until(lambda: stage.committed() == 101)
        as_told(walk, "A stuck record")
    assert stage.records() == 100
    [dead] = committed_records(stage.servers, f"{stage.topic}--{stage.group}--dlq")
    assert (dead.key(), dead.value()) == (b"customer-7", b'{"article": 4711}')


def test_a_record_that_hangs(begin: Begin, look: Look, tmp_path: Path) -> None:
    """It is found in its handler, ended by a shorter timeout, and handled by the next try."""
    incident = begin(HANGING_APP, "refunds")
    stage = incident.stage
    stage.produce(60, b'{"refund": 12}', key=b"customer-8")
    until(lambda: stage.records() == 60)
    stage.produce(1, b'{"refund": 4711}', key=b"customer-7")
    stage.produce(40, b'{"refund": 12}', key=b"customer-7")
    with incident.walk(look, tmp_path, Role.admin) as walk:
        page = walk.page
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("refund: 1 hanging key, 40 records behind")
        expect(wrong).to_contain_text("customer-7 (hanging)")
        walk.picture("incident-hanging", wrong)
        walk.click(wrong.get_by_role("link", name="In flight"))
        walk.click(page.get_by_role("link", name=f"{stage.topic}/0/60", exact=True))
        expect(page.get_by_text("It is in flight: handler refund, attempt 1")).to_be_visible()
        walk.click(page.get_by_text("Where its handler is"))
        expect(page.locator("details[open] pre")).to_contain_text("answer_of_the_bank")
        # So long that the new timeout ends it.
        expect(page.get_by_text(re.compile(r"running for ([6-9]|\d\d+)s")).first).to_be_visible()
        walk.picture("incident-hanging-floor", page.locator(".legend"))
        walk.click(page.get_by_role("link", name="Its consume timeout"))
        setting = page.get_by_role("combobox", name="Setting")
        expect(setting).to_have_value("handlers.refund.consume_timeout")
        walk.write(page.get_by_label("New value"), "5s")
        walk.click(page.get_by_role("button", name="See what it does"))
        expect(page.get_by_text("1 delivery would time out at once")).to_be_visible()
        walk.write(page.get_by_label("Why"), "the bank never answered, INC-21")
        walk.picture("incident-hanging-confirm")
        walk.click(page.get_by_role("button", name="Change it"))
        expect(page.get_by_text("1 delivery in flight timed out by it")).to_be_visible()
        until(lambda: stage.committed() == 101)
        as_told(walk, "A record that hangs")
    tries = [name.partition("#")[2] for name in stage.noted() if name.startswith("0/60#")]
    assert (stage.records(), tries) == (101, ["2"])


def test_a_poison_group(begin: Begin, look: Look, tmp_path: Path) -> None:
    """10,000 of one cause are redriven when a release can read them, each once."""
    incident = begin(POISON_APP, "payments")
    stage = incident.stage
    for _ in range(POISON // 500):
        stage.produce(500, b'{"cents": 900, "coupon": {"percent": 10}}')
        stage.produce(500 // GOOD_EVERY, b'{"cents": 900}')
    good = POISON // GOOD_EVERY
    dlq, tier = (f"{stage.topic}--{stage.group}--{each}" for each in ("dlq", "retry-1s"))
    until(lambda: stage.committed() == POISON + good)
    with incident.walk(look, tmp_path) as walk:
        page = walk.page
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("10,000 dead letters")
        walk.picture("incident-poison", wrong)
        walk.click(wrong.get_by_role("link", name="Dead letters").first)
        until(lambda: page.reload() and page.get_by_role("link", name="10,000").count())
        walk.picture("incident-poison-cause")
        row = page.get_by_role("row").filter(has_text=dlq)
        walk.click(row.get_by_role("link", name="The latest"))
        expect(page.get_by_role("heading", name="Traceback")).to_be_visible()
        walk.picture("incident-poison-letter", page.locator("pre").first)
        incident.release("2.4.1")
        walk.click(page.get_by_role("link", name="All dead letters"))
        walk.click(page.get_by_role("link", name="10,000"))
        walk.click(page.get_by_role("checkbox", name="all 10,000"))
        walk.click(page.get_by_role("button", name="Redrive to"))
        expect(page.get_by_text("Of the first 500")).to_be_visible()
        walk.write(page.get_by_label("Why"), "release 2.4.1 reads coupons, INC-18")
        walk.picture("incident-poison-confirm")
        walk.click(page.get_by_role("button", name="Redrive them"))
        done = page.get_by_role("heading", name="What was done")
        expect(done).to_be_visible(timeout=JOB_MS)
        expect(page.get_by_text("10,000 of 10,000 sent.")).to_be_visible()
        walk.picture("incident-poison-done")
        until(lambda: stage.records() == POISON + good)
        as_told(walk, "A poison group of 10,000")
    sent = [read_envelope(each.headers()) for each in committed_records(stage.servers, tier)]
    assert len({each.origin_offset for each in sent}) == len(sent) == POISON
    assert len(committed_records(stage.servers, dlq)) == POISON


def test_a_dead_dependency(begin: Begin, look: Look, tmp_path: Path) -> None:
    """What was withheld goes on by itself; what was parked meanwhile goes on with it, not later."""
    incident = begin(DEAD_APP, "parcels")
    stage = incident.stage
    stage.produce(200, b'{"parcel": 1}')
    tier = f"{stage.topic}--{stage.group}--retry-10m"
    with incident.walk(look, tmp_path) as walk:
        page = walk.page
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("circuit breaker open")
        expect(wrong).to_contain_text("records withheld")
        walk.picture("incident-dead", wrong)
        walk.click(wrong.get_by_role("link", name="Handlers"))
        expect(page.get_by_text("warehouse.internal:443").first).to_be_visible()
        walk.picture("incident-dead-handler")
        assert stage.records() == 0
        stage.open_gate()
        expect(page.get_by_text("Circuit breaker: closed")).to_be_visible()
        until(lambda: stage.committed() == 200)
        parked = 200 - stage.records()
        assert parked >= 10
        walk.click(page.get_by_role("link", name="Retry topics"))
        walk.click(page.get_by_role("link", name=tier).first)
        walk.click(page.get_by_role("checkbox", name=f"all {parked}"))
        walk.picture("incident-dead-retry", page.get_by_role("row").nth(9))
        walk.click(page.get_by_role("button", name="Make due now"))
        expect(page.get_by_text(f"{parked} of {parked} records would be due now")).to_be_visible()
        walk.write(page.get_by_label("Why"), "the warehouse answers again, INC-19")
        walk.picture("incident-dead-confirm")
        walk.click(page.get_by_role("button", name="Do it"))
        expect(page.get_by_text(f"{parked} of {parked} records due now")).to_be_visible()
        until(lambda: stage.records() == 200)
        as_told(walk, "A dead dependency")
    assert len(committed_records(stage.servers, tier)) == parked
    until(lambda: stage.committed(tier) == parked)
