"""Each page of the console beside a shop in which much is wrong, and a picture of each.

With `--pictures docs/images` each is taken on a desk and on a phone, light and dark: for the guide
those of a desk that are light, and the others into the folder of the test, to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.reads.spark_report import SparkReport
from ackfloor_monitoring.spark.report.page.markup import text
from ackfloor_monitoring.spark.report.page.page import html_page
from tests.browser.dead_letters import console_with_index
from tests.browser.real_run import listening
from tests.browser.walk import Walk
from tests.browser.window import NARROW, WIDE, Look
from tests.e2e.stage import Stage
from tests.framework.kafka.wire import until
from tests.monitoring.spark.report.samples import EVIL, REPORT

pytestmark = pytest.mark.kafka

APP = """
from ackfloor import DeadLetter

app = App("GROUP")
LATER = RetryPolicy.fixed("10m")


@app.handler(
    "TOPIC", ordering="key", on_failure="quarantine", after_dead_letter="hold", retry=LATER
)
async def bill(delivery: Delivery) -> None:
    if b"-900" in delivery.value:
        raise DeadLetter("a negative amount")
    if b"4711" in delivery.value:
        raise LookupError("no price for article 4711")
    note(handled, delivery)


@app.handler("TOPIC-points", ordering="key", retry=LATER)
async def credit(delivery: Delivery) -> None:
    if b"9999" in delivery.value:
        raise LookupError("no customer 9999")


@app.handler("TOPIC-parcels", retry=LATER)
async def ship(delivery: Delivery) -> None:
    raise ConnectionError("warehouse.internal:443: connection refused")


@app.handler("TOPIC-payments", retry=LATER, dead_letter_on=(AttributeError, ValueError))
async def charge(delivery: Delivery) -> None:
    if b"coupon" in delivery.value:
        raise AttributeError("'Coupon' object has no attribute 'rate'")
    if b"cents" not in delivery.value:
        raise ValueError("a payment of nothing")


@app.handler("TOPIC-mails", ordering="key", consume_timeout="5m", retry=LATER)
async def mail(delivery: Delivery) -> None:
    while b"slow" in delivery.value and not opened("gate"):
        await asyncio.sleep(0.05)
"""
#: Pages of which another one is in the guide.
LEFT_OUT = {"-letters"}
#: Long pages -> the row of a table up to which a picture shows them.
ROWS = {"-retry": 14, "-letters": 12, "-settings": 16}
#: Topics beside the one of the stage.
TOPICS = ("points", "parcels", "payments", "mails")


def filled(stage: Stage) -> None:
    """Write what goes wrong, and what does not."""

    def write(count: int, value: str, key: str | None = None, topic: str = "") -> None:
        name = f"{stage.topic}-{topic}" if topic else stage.topic
        stage.produce(count, value.encode(), None if key is None else key.encode(), topic=name)

    write(1, '{"article": 12, "cents": -900}', "customer-11")
    write(9, '{"article": 12, "cents": 900}', "customer-11")
    write(1, '{"article": 4711, "cents": 900}', "customer-7")
    write(10, '{"article": 12, "cents": 900}', "customer-7")
    write(60, '{"article": 12, "cents": 900}', "customer-8")
    write(1, '{"customer": 9999}', "9999", "points")
    write(12, '{"customer": 1}', "9999", "points")
    write(30, '{"customer": 1}', "1", "points")
    write(300, '{"parcel": 1}', topic="parcels")
    for _ in range(24):
        write(1, '{"cents": 900, "coupon": {"percent": 10}}', topic="payments")
        write(4, '{"cents": 900}', topic="payments")
    write(3, "{}", topic="payments")
    write(1, "slow", "ann@example.com", "mails")
    write(6, "news", "ann@example.com", "mails")


def redriven(walk: Walk, dlq: str) -> None:
    """Redrive some dead letters, so that there is a job, and an action."""
    page = walk.page
    walk.window.open(f"/c/kafka/dead-letters?list=1&topic={dlq}&error=ValueError")
    page.get_by_role("checkbox", name="all 3").check()
    page.get_by_role("button", name="Redrive to").click()
    page.get_by_label("Why").fill("INC-20, a mistake of the till")
    walk.picture("console-redrive")
    page.get_by_role("button", name="Redrive them").click()
    expect(page.get_by_role("heading", name="What was done")).to_be_visible()


def previewed(walk: Walk, group: str) -> None:
    """What a change of a setting would do; it is not made."""
    page = walk.page
    setting = "handlers.mail.consume_timeout"
    walk.window.open(f"/c/kafka/settings?group={group}&setting={setting}")
    page.get_by_label("New value").fill("1s")
    page.get_by_role("button", name="See what it does").click()
    expect(page.get_by_text("1 delivery would time out at once")).to_be_visible()
    walk.window.readable("what a change would do")


@pytest.fixture
def combinations(request: pytest.FixtureRequest) -> list[tuple[int, str]]:
    """Widths and colours: all where there are pictures of them, else one."""
    if request.config.getoption("--pictures", default=None) is None:
        return [(NARROW, "dark")]
    return list(product((WIDE, NARROW), ("light", "dark")))


def test_each_page_of_a_shop_in_trouble(
    make_stage: Callable[..., Stage],
    look: Look,
    broker: str,
    tmp_path: Path,
    pictures: Path | None,
    combinations: list[tuple[int, str]],
) -> None:
    """All of it can be read, and nothing complains."""
    del broker  # in the environment
    stage = make_stage(APP, partitions=1)
    for each in TOPICS:
        stage.make_topic(each, joint="-")
    listen = listening(stage.run(ACKFLOOR_RELEASE="2.4.0"))
    filled(stage)
    [token] = stage.folder.glob("ackfloor/run-*.token")
    tokens = {listen: token}
    names = {
        **{f"{stage.topic}-{each}": each for each in TOPICS},
        stage.topic: "orders",
        stage.group: "shop",
        listen: "127.0.0.1:9600",
        f"{stage.folder}/stage_app.py": "/app/shop.py",
        str(stage.folder): "/app",
        operator(): "ann@ops-1",
        f"on {gethostname()}": "on ops-1",
        stage.servers: "127.0.0.1:9092",
    }
    dlq = f"{stage.topic}-payments--{stage.group}--dlq"
    made = tmp_path / "failures.html"
    # What is odd in it is for tests of the report.
    made.write_text(html_page(REPORT).replace(text(EVIL), "charge"))
    more: dict[str, Any] = {"role": Role.admin, "token_files": tokens, "report": SparkReport(made)}
    with console_with_index(stage.servers, tmp_path, listen, **more) as console:
        home = console.home
        first = look(home, locale="en-GB", timezone_id="UTC")
        until(lambda: has_all(first.page, home, dlq))
        redriven(Walk(first, names, pictures), dlq)
        paths = {
            "": "overview",
            "-partitions": "partitions",
            "-partition": f"partitions/{stage.group}/{stage.topic}-points/0",
            "-in-flight": "in-flight",
            "-lanes": "lanes",
            "-retry": "retry",
            "-waiting": f"retry/{stage.topic}-parcels--{stage.group}--retry-10m/0/0",
            "-causes": "dead-letters",
            "-letters": f"dead-letters?list=1&topic={dlq}",
            "-letter": f"dead-letters/{dlq}/0/0",
            "-record": f"records/{stage.topic}/0/0",
            "-jobs": "jobs",
            "-handlers": "handlers",
            "-settings": "settings",
            "-actions": "actions",
            "-report": "report",
        }
        for width, scheme in combinations:
            is_kept = (width, scheme) == (WIDE, "light")
            window = look(home, width=width, color_scheme=scheme, locale="en-GB", timezone_id="UTC")
            others = None if pictures is None else tmp_path
            for name, path in paths.items():
                window.open(f"/c/kafka/{path}")
                expect(window.page.locator("main")).not_to_contain_text("Nothing is known")
                window.readable(name)
                folder = pictures if is_kept and name not in LEFT_OUT else others
                rows = window.page.get_by_role("row").nth(ROWS.get(name, 0))
                shot = Walk(window, names, folder)
                kind = "" if is_kept else f"-{width}-{scheme}"
                shot.picture(f"console{name}{kind}", rows if name in ROWS else None)
            shot = Walk(window, names, pictures if is_kept else others)
            previewed(shot, stage.group)
            shot.picture(f"console-change{'' if is_kept else f'-{width}-{scheme}'}")
            window.clean()
    stage.open_gate()


def has_all(page: Page, home: str, dlq: str) -> bool:
    """Whether all that goes wrong is known to the index and to the runs."""
    page.goto(f"{home}/c/kafka/dead-letters?topic={dlq}")
    rows = page.get_by_role("row").filter(has_text=dlq)
    counted = {each.locator("td").nth(2).inner_text() for each in rows.all()}
    page.goto(f"{home}/c/kafka/overview")
    said = page.locator("main").inner_text()
    parts = ("circuit breaker open", "1 blocked lane", "2 quarantined keys", "1 In flight")
    return counted == {"24", "3"} and all(each in said for each in parts)
