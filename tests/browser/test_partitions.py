"""Partitions in a real browser: the map is drawn, is renewed, can be read, and leads on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from ackfloor.cli.status.group_look import GroupLook
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.observe import BlockedLanes, Progress, RunningDelivery
from ackfloor_monitoring.console.pages.records import source_record
from tests.browser.real_run import APP, listening
from tests.browser.window import NARROW, WATCH, WIDE, Look
from tests.e2e.stage import Stage
from tests.monitoring.console.page_text import OVERVIEW
from tests.monitoring.console.served_console import console_of
from tests.monitoring.console.shown_cluster import Kafka, Run
from tests.monitoring.console.test_partition_pages import ONE, PARTITIONS, has, well
from tests.monitoring.samples import HANDLER, LONG_STACK, NOW_MS, partition

#: How many cells a map has, the width of the narrowest, and whether all are in the window.
SIZES = """() => {
  const cells = [...document.querySelectorAll(".ack-map i")];
  const boxes = cells.map((each) => each.getBoundingClientRect());
  return [boxes.length, Math.min(...boxes.map((each) => each.width)),
          Math.max(...boxes.map((each) => each.right)) <= innerWidth];
}"""


def in_trouble(run: Run, kafka: Kafka, topic: str = "orders") -> None:
    """Every kind of cell: beyond a deadline, in flight, failed, open, partly and wholly settled."""
    lane = replace(HANDLER.blocked.oldest[0], topic=topic, offset=160)
    head = replace(HANDLER.quarantined.oldest[0], topic=topic, partition=0)
    times = ((100, 50.0, -5.0), (400, 40.0, 5.0), (600, 1.0, 44.0), (700, 1.0, None))
    running = [
        RunningDelivery(topic, 0, offset, 1, ran_s, left_s, LONG_STACK)
        for offset, ran_s, left_s in times
    ]
    has(
        run,
        partition(topic=topic, floor=100, position=1_000, blocked=18),
        well(1, topic=topic),
        oldest=tuple(running), running=4, blocked=BlockedLanes(1, 17, NOW_MS, (lane,)),
        quarantined=BlockedLanes(1, 5, NOW_MS, (head,)),
    )  # fmt: skip
    seen = Progress(
        "billing", topic, 0, "source", 0, 1_200, 100, ((200, 333), (500, 502)), note="n"
    )
    kafka.looks = [GroupLook("billing", 1, [seen])]


def test_a_stuck_partition_is_three_clicks_away(run: Run, kafka: Kafka, look: Look) -> None:
    """From the overview: its group, the partition on top, and the page of what keeps it."""
    in_trouble(run, kafka)
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open(OVERVIEW)
        page = window.page
        page.get_by_role("rowheader", name="billing").get_by_role("link").click()
        expect(page.get_by_text("1 of 2 partitions needs a look")).to_be_visible()
        page.get_by_role("rowheader").first.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Partition orders/0")
        expect(page.get_by_text("orders/0/100", exact=True).first).to_be_visible()
        page.locator("p.next").get_by_role("link", name="In flight").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("In flight")
        page.get_by_role("link", name="orders/0/100", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Partition orders/0")
        window.clean()


def test_the_map_is_renewed_and_what_is_open_stays_open(run: Run, kafka: Kafka, look: Look) -> None:
    """The words below it; no element that is as it was is replaced."""
    in_trouble(run, kafka)
    with console_of(run.listen) as console:
        window = look(console.home)
        window.page.add_init_script(WATCH)
        window.open(ONE)
        page = window.page
        time = page.get_by_text("As of").locator("time")
        for _ in range(2):
            seen = time.get_attribute("datetime")
            expect(time).not_to_have_attribute("datetime", seen or "")
        assert page.evaluate("gone") == []
        summary = page.get_by_text("The same in words")
        summary.focus()
        page.keyboard.press("Enter")
        words = page.locator("details", has=summary)
        expect(words).to_contain_text("100 in flight, running for")
        has(run, partition(floor=300, position=1_000), oldest=(), running=0)
        expect(words).to_contain_text("300 to 331: settled above the floor")
        expect(words).to_have_attribute("open", "")
        expect(summary).to_be_focused()
        window.clean()


@pytest.mark.parametrize("topic", ["orders", "o" * 200])
def test_a_partition_can_be_read(run: Run, kafka: Kafka, look: Look, topic: str) -> None:
    """On a desk and on a phone, dark and light: nothing that axe knows of; all cells are seen."""
    in_trouble(run, kafka, topic)
    with console_of(run.listen) as console:
        for width in (WIDE, NARROW):
            window = look(console.home, width=width)
            window.open(f"{PARTITIONS}/billing/{topic}/0")
            for summary in window.page.locator("summary").all():
                summary.click()
            count, least_px, seen = window.page.evaluate(SIZES)
            assert (count, seen) == (240, True)
            assert least_px >= 10
        window.readable("the partition")
        for kind in ("over", "blocked", "half", "running", "open", "partly", "settled"):
            expect(window.page.locator(f".legend i.{kind}")).to_have_count(1)
        window.open(f"/c/kafka/records/{topic}/0/100")
        window.readable("the record")
        window.clean()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_record_in_flight_can_be_read(
    run: Run, kafka: Kafka, look: Look, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """One click from those in flight; however long its lines are, and where it can't be shown."""

    def one(_options: object, topic: str, number: int, offset: int) -> DeadLetter:
        if is_gone:
            raise RedriveRefused(f"{topic}/{number}/{offset} is not there: {'x' * 2_000}")
        hostile = b"\x00\xff\x1b[31m\xe2\x80\xae<script>"
        headers = [(f"trace-{n}" * 40, hostile * 30) for n in range(60)]
        return DeadLetter(topic, number, offset, hostile * 200, hostile * 150_000, headers)

    monkeypatch.setattr(source_record, "one_source_record", one)
    in_trouble(run, kafka)
    with console_of(run.listen) as console:
        window = look(console.home)
        page = window.page
        window.open("/c/kafka/in-flight")
        window.readable("those in flight")
        row = page.get_by_role("row").filter(has_text="orders/0/100")
        row.get_by_role("link", name="Its way").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Record orders/0/100")
        expect(page.get_by_role("heading", name="The record", exact=True)).to_be_visible()
        said = "can't be shown" if is_gone else "more characters are not shown"
        expect(page.get_by_text(said).first).to_be_visible()
        window.readable("a record in flight")
        window.clean()


@pytest.mark.kafka
def test_a_partition_of_a_real_run(make_stage: Callable[..., Stage], look: Look) -> None:
    """A record that does not end keeps the floor; what is settled above it is drawn; it ends."""
    stage = make_stage(APP, partitions=1)
    with console_of(listening(stage.run()), servers=stage.servers) as console:
        window = look(console.home)
        page = window.page
        stage.produce(1, b"slow", key=b"b")
        window.open("/c/kafka/in-flight")
        page.get_by_role("link", name=f"{stage.topic}/0/0", exact=True).click()
        expect(page.get_by_text("It is in flight: handler bill, attempt 1")).to_be_visible()
        stage.produce(20, key=b"a")
        page.get_by_text("The same in words").click()
        expect(page.get_by_text("1 to 20: settled above the floor")).to_be_visible()
        expect(page.locator(".ack-map i")).to_have_count(21)
        stage.open_gate()
        expect(page.get_by_text("None: everything that was read is settled.")).to_be_visible()
        window.clean()
