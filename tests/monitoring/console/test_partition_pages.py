"""The pages of partitions: which is in trouble, and what became of each offset above the floor."""

from __future__ import annotations

import html
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackfloor.cli.status.group_look import GroupLook
from ackfloor.core.acks.ack_strip import OPEN, PARTLY, SETTLED, ack_strip
from ackfloor.observe import BlockedLanes, NoisyKeys, PartitionSnapshot, Progress, RunningDelivery
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.pages.partitions.ack_cells import CELLS, ack_map
from ackfloor_monitoring.console.reads import cluster_facts
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import NOWHERE, console_of
from tests.monitoring.console.shown_cluster import Kafka, Run, progress
from tests.monitoring.samples import HANDLER, NOW_MS, handler, partition, snapshot

PARTITIONS, ONE = "/c/kafka/partitions", "/c/kafka/partitions/billing/orders/0"
#: A page is no larger.
MOST_BYTES = 200_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Answers are asked for often; no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 0.05)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.05)


def has(run: Run, *partitions: PartitionSnapshot, **changes: Any) -> None:
    """The run's worker reports these partitions, and how its handler is."""
    quiet: dict[str, Any] = {
        "blocked": BlockedLanes(), "quarantined": BlockedLanes(), "noisy_keys": NoisyKeys(),
        "oldest": (), "running": 0,
    }  # fmt: skip
    worker = WorkerMetrics()
    handlers = (handler(**{**quiet, **changes}),)
    # Of now: what is in flight has run for as long as is said, and no longer.
    taken_ms = time.time_ns() // 1_000_000
    worker.snapshot(
        snapshot(taken_ms=taken_ms, partitions=partitions, handlers=handlers, faults=())
    )
    run.metrics.update(0, worker.report())


def well(number: int, **changes: Any) -> PartitionSnapshot:
    """A partition of which everything that was read is settled."""
    quiet = {
        "floor": 120, "position": 120, "open_count": 0, "gap_count": 0, "parking": 0,
        "oldest_open_ms": None,
    }  # fmt: skip
    return partition(partition=number, **{**quiet, **changes})


def in_flight(offset: int, running_s: float, left_s: float | None, **more: Any) -> RunningDelivery:
    """A record of the first partition that a handler has."""
    return RunningDelivery("orders", 0, offset, 1, running_s=running_s, left_s=left_s, **more)


def order_of(page: str) -> list[str]:
    """The partitions of a page, from top to bottom."""
    return re.findall(r'<th scope="row"><a href="/c/kafka/partitions/billing/([^"]+)"', page)


def test_the_worst_partition_is_first(run: Run, kafka: Kafka) -> None:
    """Beyond its deadline, then blocked, then what nobody has; what is well says nothing."""
    lane = replace(HANDLER.blocked.oldest[0], partition=2, offset=90)
    has(
        run, well(1), partition(partition=2, blocked=17), partition(), well(5),
        oldest=(in_flight(100, 50.0, -5.0),), running=1,
        blocked=BlockedLanes(1, 17, NOW_MS, (lane,)),
    )  # fmt: skip
    lost = Progress("billing", "orders", 7, "source", start=0, end=400, floor=100)
    kafka.looks = [GroupLook("billing", 1, [replace(progress(end=130), owner="a@b"), lost])]
    with console_of(run.listen) as console:
        page = console.ask(PARTITIONS).text
    said = words(page)
    assert order_of(page) == ["orders/0", "orders/2", "orders/7", "orders/1", "orders/5"]
    assert "3 of 5 partitions need a look" in said
    assert re.search("100 is .* over its deadline", said)
    assert re.search("blocked for [^:]*: 17 behind 90", said)
    assert "orders/7 no worker has it" in said
    assert "customer-7" not in page


def test_the_timeout_of_what_runs_is_one_click_away(run: Run, kafka: Kafka) -> None:
    """Of the handler that has the record of the floor; not for a viewer, who sees no settings."""
    del kafka
    has(run, partition(), oldest=(in_flight(100, 50.0, 1_750.0),), running=1)
    link = "/c/kafka/settings?group=billing&amp;setting=handlers.bill.consume_timeout"
    with console_of(run.listen, role=Role.reader) as console:
        assert f'<a href="{link}">Its consume timeout</a>' in console.ask(ONE).text
    with console_of(run.listen, role=Role.viewer) as console:
        seen = console.ask(ONE).text
    assert "orders/0/100" in seen
    assert "consume timeout" not in seen


def test_where_all_is_well_it_says_so(run: Run, kafka: Kafka) -> None:
    """And where nothing is known, what to do."""
    kafka.looks = []
    has(run, well(0), well(1))
    with console_of(run.listen) as console:
        assert "None of 2 partitions needs a look" in words(console.ask(PARTITIONS).text)
        one = words(console.ask(ONE).text)
        assert "None: everything that was read is settled" in one
        assert "Nothing is open above the floor" in one
        assert "no run that answers has it" in words(console.ask(f"{ONE}7").text)
        other = words(console.ask(f"{PARTITIONS}?group=other").text)
        assert "None of group other is known" in other
    with console_of(NOWHERE) as console:
        assert "ackfloor run starts a run" in words(console.ask(PARTITIONS).text)


def test_a_partition_without_a_run_is_shown_by_its_commit(kafka: Kafka) -> None:
    """As `ackfloor acks` shows it, with the member that has it."""
    seen = progress(end=400, runs=((103, 110), (120, 130)))
    kafka.looks = [GroupLook("billing", 1, [replace(seen, owner="shop@10.0.0.1")])]
    with console_of(NOWHERE) as console:
        assert "orders/0" in words(console.ask(PARTITIONS).text)
        said = words(console.ask(ONE).text)
    assert "orders/0/100 is open" in said
    assert "Its member is shop@10.0.0.1" in said
    assert "From the floor, 100, to 129" in said
    assert "103 to 109: settled above the floor" in said
    assert "ackfloor acks orders/0 --group billing" in said


def test_a_commit_without_more_says_what_it_does_not_know(kafka: Kafka) -> None:
    """Nothing above the floor is settled: what lies behind it may be read, or not."""
    kafka.looks = [GroupLook("billing", 0, [progress(end=400)])]
    with console_of(NOWHERE) as console:
        said = words(console.ask(ONE).text)
    assert "no worker has it" in said
    assert "Of the 300 records behind it nothing is known" in said
    assert "Nothing is open above the floor" not in said


def test_the_record_that_the_floor_waits_for_is_named(run: Run, kafka: Kafka) -> None:
    """In flight: its age, its deadline and the line where it is, one click from its page."""
    del kafka
    oldest = in_flight(100, 50.0, -5.0, stack=("/app/shop.py:12 pay",), behind=3)
    has(run, partition(), oldest=(oldest,), running=1)
    with console_of(run.listen) as console:
        page = console.ask(ONE).text
    said = words(page)
    assert "orders/0/100 has been open for" in said
    assert "handler bill, attempt 1, running for" in said
    assert "over its deadline" in said
    assert "/app/shop.py:12 pay" in said
    assert '<p class="next"><a href="/c/kafka/in-flight">In flight</a>' in page


def test_a_failed_record_leads_to_its_lane(run: Run, kafka: Kafka) -> None:
    """With its error, its attempt, its next try, and how many wait."""
    del kafka
    lane = replace(HANDLER.blocked.oldest[0], offset=100)
    has(run, partition(blocked=18), blocked=BlockedLanes(1, 17, NOW_MS, (lane,)))
    with console_of(run.listen) as console:
        page = console.ask(ONE).text
    said = words(page)
    assert "Its attempt 2 failed: shop.Boom: no stock. Now it is waiting" in said
    assert "17 wait behind it" in said
    assert '<p class="next"><a href="/c/kafka/lanes">Lanes</a>' in page
    assert 'class="blocked" title="100: 100 failed, 17 behind"' in page


def test_a_record_that_no_row_names_has_hints(run: Run, kafka: Kafka) -> None:
    """What the run does tell: what is being written, what waits, who has paused the handler."""
    del kafka
    has(run, partition(waiting=4), paused=True, paused_reason="deploy")
    with console_of(run.listen) as console:
        page = console.ask(ONE).text
    said = words(page)
    assert "The run does not name it" in said
    assert "1 record is to be written to another topic" in said
    assert "4 records are waiting for their time" in said
    assert "the handler is paused" in said
    assert '<a href="/c/kafka/handlers">Handlers</a>' in page


def test_a_quarantined_key_leads_to_the_copy_that_it_waits_for(
    run: Run,
    kafka: Kafka,
) -> None:
    """In a retry topic: the command that shows it; held: the dead letters."""
    del kafka
    head = replace(HANDLER.quarantined.oldest[0], partition=0)
    moved = replace(head, offset=42, head="waiting")
    has(run, partition(), quarantined=BlockedLanes(2, 10, NOW_MS, (head, moved)))
    with console_of(run.listen) as console:
        page = console.ask(ONE).text
    assert "ackfloor retry show orders/0/42 --group billing" in page
    assert "ackfloor retry show orders/0/41" not in page
    assert 'href="/c/kafka/dead-letters?list=1&amp;group=billing&amp;handler=bill"' in page


def test_a_partition_is_renewed_while_one_looks(run: Run, kafka: Kafka) -> None:
    """Its address says which one; its news are of the same."""
    del kafka
    has(run, well(0), partition(partition=1))
    with console_of(run.listen) as console:
        page = console.ask(ONE).text
        address = html.unescape(re.findall('data-events="([^"]+)"', page)[0])
        assert address == f"{ONE}/events"
        assert "<h1>Partition orders/0</h1>" in page
        with console.events(address) as events:
            assert any("everything that was read is settled" in text for _, text in events)
            has(run, partition(), well(1))
            assert any("orders/0/100" in text for _, text in events)
        page = console.ask(f"{PARTITIONS}?group=billing").text
        address = html.unescape(re.findall('data-events="([^"]+)"', page)[0])
        assert address == f"{PARTITIONS}/events?group=billing"


def test_other_pages_lead_there(run: Run, kafka: Kafka) -> None:
    """A group's row, a record in flight, a lane."""
    del kafka
    has(
        run, partition(), oldest=(in_flight(100, 5.0, 1.0),), running=1, blocked=HANDLER.blocked,
        quarantined=HANDLER.quarantined,
    )  # fmt: skip
    with console_of(run.listen) as console:
        assert f'<a href="{PARTITIONS}?group=billing"' in console.ask("/c/kafka/overview").text
        page = console.ask("/c/kafka/in-flight").text
        assert f'<a href="{ONE}">orders/0/100</a>' in page
        assert '<a href="/c/kafka/records/orders/0/100">Its way</a>' in page
        lanes = console.ask("/c/kafka/lanes").text
    assert f'<a href="{ONE}">orders/0/90</a>' in lanes
    assert 'partitions/billing/orders/1">orders/1/41</a>' in lanes


def test_pages_of_many_partitions_are_bounded(run: Run, kafka: Kafka) -> None:
    """300 that are all in trouble, and as many of a retry topic, which are left out."""
    parts = [
        partition(partition=number, topic=topic, blocked=12, pause_reason="span", paused=True)
        for topic in ("orders.of.customers", "orders.of.customers--billing--retry-30s")
        for number in range(300)
    ]
    runs = tuple((100 + 2 * each, 101 + 2 * each) for each in range(1, 300))
    kafka.looks = [
        GroupLook("billing", 1, [
            Progress("billing", each.topic, each.partition, "source", 0, 900, 100, runs, note="n")
            for each in parts
        ])
    ]  # fmt: skip
    has(run, *(replace(each, position=700) for each in parts))
    with console_of(run.listen) as console:
        many = console.ask(PARTITIONS).text
        one = console.ask("/c/kafka/partitions/billing/orders.of.customers/0").text
    assert many.count("<tr data-row") == 300
    assert "600 of 600 partitions need a look. Shown are the 300 worst." in words(many)
    assert len(many.encode()) < MOST_BYTES
    assert one.count("<i class=") - len(re.findall("<li><i", one)) == CELLS
    assert len(one.encode()) < MOST_BYTES


@pytest.mark.parametrize("path", [PARTITIONS, ONE])
def test_a_stored_script_stays_text(run: Run, kafka: Kafka, path: str) -> None:
    """In a note, an error, a stack, the name of a handler; and in an address."""
    lane = replace(HANDLER.blocked.oldest[0], offset=101, error=SCRIPT)
    has(
        run, partition(handler=SCRIPT), name=SCRIPT, running=1,
        oldest=(in_flight(100, 7.0, -3.0, stack=(SCRIPT,)),),
        blocked=BlockedLanes(1, 1, NOW_MS, (lane,)),
    )  # fmt: skip
    kafka.looks = [GroupLook("billing", 1, [progress(end=400, note=SCRIPT)])]
    with console_of(run.listen) as console:
        asked = (path, f"{PARTITIONS}/%3Cscript%3Ex/%3Cscript%3Ey/%3Cscript%3Ez",
                 f"{PARTITIONS}?group=%3Cscript%3Ex")  # fmt: skip
        for each in asked:
            page = console.ask(each).text
            assert not Tags(page).scripts
            assert Tags(page).sources == ["/static/console.js"]
            assert "&lt;script&gt;" in page


# The ack map.


def facts_of(*runs: tuple[int, int], until: int, floor: int = 100) -> PartitionFacts:
    """A partition that no run has: its commit tells all."""
    end = (until - 1, until)
    seen = progress(end=until, floor=floor, runs=(*runs, end))
    return PartitionFacts(seen)


@pytest.mark.parametrize("until", [103, 340, 341, 5_000, 1_000_003])
def test_the_map_is_the_strip_of_the_command_line(until: int) -> None:
    """The same cells, and every offset is in exactly one of them."""
    facts = facts_of((101, 102), until=until)
    found = ack_map(facts)
    assert found is not None
    kinds = {SETTLED: "settled", PARTLY: "partly", OPEN: "open"}
    strip = ack_strip(100, facts.seen.runs, until, (), CELLS)
    assert [each.kind for each in found.cells] == [kinds[each] for each in strip]
    assert [each.first for each in found.cells[1:]] == [each.last + 1 for each in found.cells[:-1]]
    assert (found.cells[0].first, found.cells[-1].last) == (100, until - 1)
    assert len(found.cells) <= CELLS


@pytest.mark.parametrize("until", [103, 340, 341, 5_000, 1_000_003])
def test_a_record_is_in_the_cell_of_its_offset(until: int) -> None:
    """Whatever the width of a cell; what is outside the map is nowhere."""
    for offset in (100, 101, 100 + (until - 100) // 3, until - 1, 99, until):
        row = {"record": f"orders/0/{offset}", "running_s": 1.0, "left_s": 9.0}
        found = ack_map(replace(facts_of(until=until), running=[row]))
        assert found is not None
        cells = [each for each in found.cells if each.kind == "running"]
        assert [each.first <= offset <= each.last for each in cells] == (
            [True] if 100 <= offset < until else []
        )


def test_a_cell_shows_the_worst_of_what_is_in_it() -> None:
    """Beyond its deadline, failed, half of its time used, in flight."""
    rows = [
        {"record": "orders/0/100", "running_s": 1.0, "left_s": 9.0},
        {"record": "orders/0/101", "running_s": 6.0, "left_s": 4.0},
        {"record": "orders/0/102", "running_s": 60.0, "left_s": None},
        {"record": "orders/0/103", "running_s": 11.0, "left_s": -1.0},
    ]
    lane = {"record": "orders/0/104", "state": "blocked", "behind": 5}
    facts = replace(facts_of(until=110), running=rows, lanes=[lane])
    found = ack_map(facts)
    assert found is not None
    kinds = [each.kind for each in found.cells]
    assert kinds == [
        "running", "half", "running", "over", "blocked", "open", "open", "open", "open", "settled",
    ]  # fmt: skip
    wide = ack_map(facts, most=2)
    assert wide is not None
    assert [each.kind for each in wide.cells] == ["over", "partly"]
    assert "104 failed, 5 behind; 100 in flight" in wide.cells[0].text
    said = [each.words for each in found.ranges()]
    assert "105 to 108: open: it waits for a slot, or for its time" in said


def test_nothing_is_drawn_where_all_is_settled() -> None:
    """Nor where nothing is known."""
    assert ack_map(PartitionFacts(progress(end=400))) is None
    assert ack_map(PartitionFacts(progress(end=400, floor=None))) is None
