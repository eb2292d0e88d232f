"""The page of a record and what leads there: its way, where it is now, and its place on the map."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackfloor.cli.progress.partition_rows import Live
from ackfloor.cli.shared.parameters import Brokers
from ackfloor.cli.status.group_look import GroupLook
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.redaction import Redaction
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.observe import BlockedLanes, Progress
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.index.follower import Follower
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.pages import dead_letter_page
from ackfloor_monitoring.console.pages.partitions import parked_offsets
from ackfloor_monitoring.console.pages.partitions.ack_cells import (
    CELLS,
    NAMED,
    ParkedOffset,
    ack_map,
)
from ackfloor_monitoring.console.reads import cluster_facts, searches
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts
from ackfloor_monitoring.console.reads.settled_copies import SettledCopies
from tests.monitoring.console.dead_letter_source import DLQ, FIRST_MS, DeadLetterSource
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import NOWHERE, Console, console_of
from tests.monitoring.console.shown_cluster import Kafka, Run
from tests.monitoring.console.test_partition_pages import has, in_flight
from tests.monitoring.samples import HANDLER, NOW_MS, partition

RECORD, PARTITION = "/c/kafka/records/orders/1", "/c/kafka/partitions/billing/orders/1"
FIRST, SECOND = "orders--billing--retry-30s", "orders--billing--retry-5m"
#: When an index was read that is newer than any answer of Kafka, and one that is older.
NEW_MS, OLD_MS, OLD = 4_000_000_000_000, 1_600_000_000_000, "2020-09-13 12:26:40 UTC"
Serve = Callable[..., AbstractContextManager[Console]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Answers are asked for often; no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 0.05)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.05)


@pytest.fixture
def source() -> DeadLetterSource:
    """An empty dead-letter topic, and no retry topic."""
    return DeadLetterSource()


@pytest.fixture
def serve(source: DeadLetterSource, tmp_path: Path) -> Serve:
    """Serves a console whose index has read these topics once, at `taken_ms`."""

    @contextmanager
    def served(
        *runs: str, read: bool = True, taken_ms: int = NEW_MS, why: str = "", **more: Any
    ) -> Iterator[Console]:
        rules, path = Redaction(), tmp_path / "kafka.sqlite"
        index = DeadLetterIndex(KafkaOptions(), path, rules, 10_000)
        index.follower.error = why
        if read:
            file = IndexFile(path, rules)
            once = Follower(lambda: source, file, rules, 10_000, wait=lambda _s: True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time_ns", lambda: taken_ms * 1_000_000)
                once.follow(source)
        with console_of(*(runs or (NOWHERE,)), index=index, **more) as console:
            yield console

    return served


def at(topic: str, floor: int, end: int = 100, **more: Any) -> Progress:
    """How far the group is in a partition."""
    kind = "source" if topic == "orders" else "retry"
    number = 1 if kind == "source" else 0
    return Progress("billing", topic, number, kind, 0, end, floor, **more)


def knows(kafka: Kafka, *found: Progress) -> None:
    """Kafka says this of the group."""
    kafka.looks = [GroupLook("billing", 1, list(found))]


def way_in(page: str) -> list[str]:
    """The steps of a page, in order."""
    steps = page.partition('<ol class="way">')[2].partition("</ol>")[0]
    return [html.unescape(words(each)).strip() for each in re.findall("<li>(.*?)</li>", steps)]


def test_a_page_shows_the_way_of_a_record(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """From its source through each retry topic, into the dead-letter topic, and who redrove it."""
    source.park(origin_offset=7, failed_at_ms=FIRST_MS)
    source.park("5m", origin_offset=7, failed_at_ms=FIRST_MS + 60_000, attempt=2)
    source.bury(origin_offset=7, failed_at_ms=FIRST_MS + 400_000, attempt=3)
    source.dispose(0, 0, FIRST_MS + 500_000, by="ann@ops", job="20261121-f2c", target="orders")
    knows(kafka, at("orders", 50), at(FIRST, 1), at(SECOND, 1))
    with serve() as console:
        page = console.ask(f"{RECORD}/7")
        of_copy = console.ask(f"/c/kafka/records/{SECOND}/0/0")
    assert page.status == of_copy.status == 200
    steps = way_in(page.text)
    for step, says in zip(
        steps,
        (
            "written as orders/1/7", "attempt 1 failed on handler bill", "attempt 2 failed",
            "attempt 3 failed", "replayed to orders by ann@ops, job 20261121-f2c",
        ),
        strict=True,
    ):  # fmt: skip
        assert says in step
    assert f"written as {DLQ}/0/0" in steps[3]
    assert f'href="/c/kafka/dead-letters/{DLQ}/0/0"' in page.text
    said = words(page.text)
    assert "It was redriven to orders: it is another record there." in said
    assert f'<a href="{PARTITION}">billing</a>' in page.text
    assert way_in(of_copy.text) == steps
    assert f'It is a copy of <a href="{RECORD}/7">' in of_copy.text


@pytest.mark.parametrize(
    ("floor", "says"),
    [
        (0, f"It waits in {FIRST}. Due"),
        (1, f"It is worked off: the group has settled it in {FIRST}"),
        (None, f"It waits in {FIRST}. Due"),
    ],
)
def test_a_record_of_a_retry_topic_waits_or_is_worked_off(
    source: DeadLetterSource, serve: Serve, kafka: Kafka, floor: int | None, says: str
) -> None:
    """As the group's commits there say."""
    source.park(origin_offset=7)
    progress = replace(at(FIRST, 0), floor=floor)
    knows(kafka, at("orders", 50), progress)
    with serve() as console:
        assert says in words(console.ask(f"{RECORD}/7").text)
    knows(kafka, at("orders", 50), at(FIRST, 0, runs=((0, 1),)))
    with serve() as console:
        assert "It is worked off" in words(console.ask(f"{RECORD}/7").text)


def test_what_went_on_after_the_index_was_read_is_not_said_to_be_worked_off(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """Kafka is newer: the record may be in the next retry topic. The page and the map say so."""
    source.park(origin_offset=102)
    knows(kafka, at("orders", 100, 400, runs=((101, 107),)), at(FIRST, 1))
    with serve(taken_ms=OLD_MS, why="no broker answers") as console:
        said = words(console.ask(f"{RECORD}/102").text)
        of_other = words(console.ask(f"{RECORD}/103").text)
        of_map = console.ask(PARTITION).text
    assert "worked off" not in said
    assert f"It is settled in {FIRST}. The index is as of {OLD} : it may have gone on." in said
    assert f"It is settled in orders. The index is as of {OLD} : it may have gone on." in of_other
    assert "The index is not renewed: no broker answers" in said
    text = f"102 settled in {FIRST}; the index does not say yet if it went on"
    assert f'<i class="unknown" title="102: {text}"' in of_map
    with serve() as console:
        said = words(console.ask(f"{RECORD}/102").text)
        of_map = console.ask(PARTITION).text
    assert "It is worked off" in said
    assert "The index is as of 2096-10-02 07:06:40 UTC" in said
    assert "not renewed" not in said
    assert 'class="settled" title="102: ' in of_map


def test_what_was_settled_when_the_index_was_read_stays_so() -> None:
    """By the answer before, too: a newer one alone makes nothing doubtful."""
    place = "billing", FIRST, 0
    before = OfKafka([GroupLook("billing", 1, [at(FIRST, 1)])], (), 10, 19)
    settled = SettledCopies(OfKafka([GroupLook("billing", 1, [at(FIRST, 2)])], (), 20, 29, before))
    for by_ms, had in (
        (None, [False, False, False]), (18, [False, False, False]), (19, [True, False, False]),
        # It was asked then, and had not answered yet.
        (28, [True, False, False]), (29, [True, True, False]),
    ):  # fmt: skip
        assert [settled.had(by_ms, *place, offset) for offset in range(3)] == had


def test_kafka_s_answer_before_is_kept(kafka: Kafka) -> None:
    """One, however often it is asked."""

    async def third(cluster: Cluster) -> OfKafka:
        found = await cluster.kafka.look()
        while found.number < 3:
            found = await cluster.kafka.after(found.number, 0.1)
        cluster.close()
        assert found.value is not None
        return found.value

    del kafka
    with ThreadPoolExecutor(2) as asking:
        found = asyncio.run(third(Cluster("kafka", Brokers(servers=NOWHERE), [NOWHERE], asking)))
    assert found.before is not None
    assert found.before.before is None
    assert found.before.answered_ms <= found.taken_ms <= found.answered_ms


def test_what_kafka_has_not_said_is_not_guessed(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """Whether a copy still waits; the way is shown all the same."""
    kafka.error = "no broker takes a connection"
    source.park(origin_offset=7)
    with serve() as console:
        said = words(console.ask(f"{RECORD}/7").text)
    assert "whether it waits there, Kafka has not said" in said
    assert "attempt 1 failed" in said


def test_a_held_key_is_no_wait_of_its_record(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """It is dead-lettered: its copy in the retry topic only keeps others waiting, while it does."""
    source.bury(origin_offset=102, failed_at_ms=FIRST_MS)
    for n in range(2):
        source.park(origin_offset=102, reason=Reason.HELD, failed_at_ms=FIRST_MS + n + 1)
    knows(kafka, at("orders", 100, runs=((101, 107),)), at(FIRST, 0))
    with serve() as console:
        page = console.ask(f"{RECORD}/102").text
        of_map = console.ask(PARTITION).text
        knows(kafka, at("orders", 100), at(FIRST, 2))
        freed = words(console.ask(f"{RECORD}/102").text)
        while "Its key is held" in freed:
            freed = words(console.ask(f"{RECORD}/102").text)
    said = words(page)
    open_ = f"It is in the dead-letter topic {DLQ}, and open."
    assert f"{open_} Its key is held: those behind it wait" in said
    steps = way_in(page)
    assert "its key is held until an operator frees it" in steps[2]
    assert "renewed" in steps[3]
    assert 'class="dead" title="102: 102 dead-lettered after attempt 7' in of_map
    assert open_ in freed


def test_a_key_that_was_freed_is_not_held(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """Nor is its record worked off, where the index has nothing left of it but the held copies."""
    for n in range(2):
        source.park(origin_offset=102, reason=Reason.HELD, failed_at_ms=FIRST_MS + n)

    def said(floor: int) -> tuple[str, str]:
        knows(kafka, at("orders", 100, runs=((101, 107),)), at(FIRST, floor))
        with serve() as console:
            of_record = words(console.ask(f"{RECORD}/102").text)
            return of_record, words(console.ask(PARTITION).text)

    # The first copy was renewed: the second one holds the key.
    for floor in (0, 1):
        of_record, of_map = said(floor)
        assert "It is dead-lettered. Its key is held" in of_record
        assert "102: 102 dead-lettered, and its key is held" in of_map
    of_record, of_map = said(2)
    assert "It is dead-lettered." in of_record
    assert "Its key is held" not in of_record
    assert "worked off" not in of_record
    assert "102: 102 dead-lettered" in of_map
    assert "and its key is held" not in of_map


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (40, "It is settled in its source topic"), (55, "It is settled in its source topic"),
        (52, "It is open"), (100, "Nothing is there yet: the log ends at 100"),
    ],
)  # fmt: skip
def test_a_record_that_was_never_parked_is_placed_as_well(
    source: DeadLetterSource, serve: Serve, kafka: Kafka, offset: int, says: str
) -> None:
    """By the commit of its group."""
    del source
    knows(kafka, at("orders", 50, runs=((55, 60),)))
    with serve() as console:
        page = console.ask(f"{RECORD}/{offset}").text
    assert says in words(page)
    assert "Its way" not in page


def test_where_nothing_is_known_it_says_so(
    source: DeadLetterSource, serve: Serve, tmp_path: Path, kafka: Kafka
) -> None:
    """No group, no index yet, no index at all, no place."""
    kafka.looks = []
    source.bury()
    with serve() as console:
        assert "Nothing is known of it" in words(console.ask(f"{RECORD}/9").text)
        for place in (f"{RECORD}/x", f"{RECORD}/-1", f"{RECORD}/{10**20}", f"{RECORD}/%C2%B2"):
            assert console.ask(place).status == 404
        with console.events(f"{RECORD}/x/events") as events:
            assert next(events) == ("over", "orders/1/x is no place of a record")
    (tmp_path / "kafka.sqlite").unlink()
    with serve(read=False) as console:
        said = words(console.ask(f"{RECORD}/0").text)
        assert "The index can't be read: it is being built" in said
    with console_of(NOWHERE) as console:
        assert "this console keeps none" in words(console.ask(f"{RECORD}/0").text)


def test_what_runs_say_now_is_shown(
    source: DeadLetterSource, serve: Serve, run: Run, kafka: Kafka
) -> None:
    """In flight, by its place in a retry topic as well; others wait for it."""
    source.park(origin_offset=7)
    knows(kafka, at("orders", 50), at(FIRST, 0))
    copy = replace(in_flight(0, 5.0, 1.0), topic=FIRST, partition=0)
    lane = replace(HANDLER.quarantined.oldest[0], partition=1, offset=7, head="running")
    has(
        run, partition(partition=1), oldest=(copy,), running=1,
        quarantined=BlockedLanes(1, 5, NOW_MS, (lane,)),
    )  # fmt: skip
    with serve(run.listen) as console:
        said = words(console.ask(f"{RECORD}/7").text)
        other = words(console.ask(f"{RECORD}/8").text)
    assert "It is in flight" in said
    assert "Others wait for it" in said
    assert "It is in flight" not in other
    assert "Others wait for it" not in other


def test_a_record_page_is_renewed(source: DeadLetterSource, serve: Serve, kafka: Kafka) -> None:
    """While somebody looks: what waited is worked off."""
    source.park(origin_offset=7)
    knows(kafka, at("orders", 50), at(FIRST, 0))
    with serve() as console, console.events(f"{RECORD}/7/events") as events:
        assert any("It waits in" in text for _, text in events)
        knows(kafka, at("orders", 50), at(FIRST, 1))
        assert any("It is worked off" in text for _, text in events)


def test_pages_that_read_the_index_are_bounded_as_searches(
    source: DeadLetterSource, serve: Serve, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is open is renewed when there is room again, and goes on until then."""
    source.park(origin_offset=7)
    knows(kafka, at("orders", 50), at(FIRST, 0))
    with serve() as console, console.events(f"{RECORD}/7/events") as events:
        assert any("It waits in" in text for _, text in events)
        with monkeypatch.context() as crowded:
            crowded.setattr(searches, "MOST_WAITING", 0)
            for path in (f"{RECORD}/7", PARTITION):
                refused = console.ask(path)
                assert (refused.status, "too many searches" in refused.text) == (503, True), path
            knows(kafka, at("orders", 50), at(FIRST, 1))
        assert any("It is worked off" in text for _, text in events)


def test_a_stored_script_stays_text(source: DeadLetterSource, serve: Serve, kafka: Kafka) -> None:
    """In an error, a handler, who disposed of it and his job; and in the address."""
    kafka.looks = []
    source.park(origin_offset=7, error_type=SCRIPT, handler=SCRIPT)
    source.bury(origin_offset=7, error_message=SCRIPT, error_type=SCRIPT)
    source.dispose(0, 0, by=SCRIPT, job=SCRIPT, target=SCRIPT)
    with serve(role=Role.viewer) as console:
        for path in (f"{RECORD}/7", "/c/kafka/records/%3Cscript%3Ex/0/1"):
            page = console.ask(path)
            assert page.status == 200
            assert not Tags(page.text).scripts
            assert Tags(page.text).sources == ["/static/console.js"]
        assert "&lt;script&gt;" in page.text


def test_a_page_is_bounded(source: DeadLetterSource, serve: Serve, kafka: Kafka) -> None:
    """However often a record was redriven: the newest steps are shown."""
    kafka.looks = []
    for n in range(1_000):
        source.park(origin_offset=7, failed_at_ms=FIRST_MS + n, handler="h" * 900, attempt=n + 1)
    with serve() as console:
        page = console.ask(f"{RECORD}/7").text
    assert len(page) < 200_000
    assert "attempt 1000 failed" in page
    assert "attempt 800 failed" not in page


# The dead letter's page and lanes lead there.


def test_a_record_of_an_earlier_topic_is_told_from_the_one_at_its_place(
    source: DeadLetterSource, serve: Serve, kafka: Kafka
) -> None:
    """Its copies lead to it, and the page of the place says that there was another one."""
    source.bury(origin_offset=7, idempotency_key="old/1/7", error_message="of the old one")
    source.bury(origin_offset=7, idempotency_key="new/1/7@2", error_message="of the new one")
    source.source_id = "new"
    knows(kafka, at("orders", 50))
    with serve() as console:
        now = words(console.ask(f"{RECORD}/7").text)
        earlier = words(console.ask(f"/c/kafka/records/{DLQ}/0/0").text)
    assert "of the new one" in now
    assert "of the old one" not in now
    assert "An earlier topic of this name had a record at this place as well" in now
    assert "of the old one" in earlier
    assert "of the new one" not in earlier
    assert "Its topic was deleted and created anew since then" in earlier


def test_a_dead_letter_leads_to_its_record(
    source: DeadLetterSource, serve: Serve, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows what became of it, redrives and all."""
    del kafka
    source.park(origin_offset=7, failed_at_ms=FIRST_MS)
    source.bury(origin_offset=7, failed_at_ms=FIRST_MS + 60_000)
    source.dispose(0, 0, FIRST_MS + 70_000, by="ann@ops")
    one = source.logs[0][0]
    monkeypatch.setattr(dead_letter_page, "one_dead_letter", lambda *_: one)
    with serve() as console:
        page = console.ask(f"/c/kafka/dead-letters/{DLQ}/0/0").text
    assert f'<a href="{RECORD}/7">The record orders/1/7</a>' in page
    said = words(page).partition("All that became of its record")[2]
    assert said.index(f"written as {FIRST}/0/0") < said.index("replayed to t by ann@ops")


def test_lanes_lead_to_the_record_and_its_dead_letters(
    serve: Serve, run: Run, kafka: Kafka
) -> None:
    """Held keys are apart from those that wait for a retry topic, and from blocked lanes."""
    del kafka
    held, blocked = HANDLER.quarantined.oldest[0], HANDLER.blocked.oldest[0]
    moved = replace(held, offset=42, key="customer 9&x", head="waiting", since_ms=NOW_MS)
    cut = replace(held, offset=43, key="k" * 200, since_ms=NOW_MS)
    has(
        run, partition(partition=1), blocked=BlockedLanes(1, 17, NOW_MS, (blocked,)),
        quarantined=BlockedLanes(3, 7, NOW_MS, (held, moved, cut)),
    )  # fmt: skip
    with serve(run.listen) as console:
        page = console.ask("/c/kafka/lanes").text
    with serve(run.listen, role=Role.viewer) as console:
        for_viewer = console.ask("/c/kafka/lanes").text
    parts = re.split("<h3>", page)[1:]
    assert [each.partition(":")[0] for each in parts] == ["Held", "Quarantined", "Blocked"]
    assert ["orders/1/41" in each for each in parts] == [True, False, False]
    assert ["orders/1/42" in each for each in parts] == [False, True, False]
    assert ["orders/0/90" in each for each in parts] == [False, False, True]
    for place in ("orders/1/41", "orders/1/42", "orders/0/90"):
        assert f'<a href="/c/kafka/records/{place}"' in page
    of_bill = "/c/kafka/dead-letters?list=1&amp;group=billing&amp;handler=bill"
    assert f'href="{of_bill}&amp;key=customer-9"' in page
    assert f'href="{of_bill}&amp;key=customer+9%26x"' in page
    assert "kkkk" not in "".join(re.findall('href="([^"]+)"', page))
    assert "&amp;key=" not in for_viewer
    assert f'href="{of_bill}"' in for_viewer


# The ack map.


def test_the_map_draws_what_was_parked(
    source: DeadLetterSource, serve: Serve, run: Run, kafka: Kafka
) -> None:
    """In a retry topic, dead-lettered, redriven; what is worked off is settled as any other."""
    source.park(origin_offset=101)
    source.park(origin_offset=102)
    source.park(origin_offset=106, reason=Reason.BEHIND, attempt=0, error_type=None)
    source.bury(origin_offset=103)
    source.bury(origin_offset=104)
    source.dispose(0, 1)
    source.park(origin_offset=105)
    knows(kafka, at("orders", 100, 400, runs=((101, 107),)), at(FIRST, 0, runs=((1, 2),)))
    has(run, partition(partition=1, position=110, gap_count=6))
    with serve(run.listen) as console:
        page = console.ask(PARTITION).text
    cells = re.findall(r'<i class="(\w+)" title="(\d+): ', page)
    kinds = {int(offset): kind for kind, offset in cells}
    assert [kinds[n] for n in range(101, 107)] == [
        "parked", "settled", "dead", "disposed", "parked", "parked",
    ]  # fmt: skip
    said = words(page)
    assert "101: 101 parked after attempt 1, shop.Boom" in said
    assert "103: 103 dead-lettered after attempt 7, shop.Boom" in said
    assert "104: 104 dead-lettered, then replayed" in said
    assert "106: 106 parked behind another one of its key" in said
    assert "in the dead-letter topic" in said.partition("Ack map")[2].partition("The same")[0]
    for offset in (101, 103, 104, 106):
        assert f'<a href="{RECORD}/{offset}"' in page


def test_a_map_without_an_index_says_so(
    source: DeadLetterSource, serve: Serve, kafka: Kafka, tmp_path: Path
) -> None:
    """Where it can't be read; too much is said as well."""
    knows(kafka, at("orders", 100, 400, runs=((101, 107),)))
    (tmp_path / "kafka.sqlite").write_bytes(b"no database" * 500)
    with serve(read=False) as console:
        assert "What was parked is not drawn: the index can't be read" in words(
            console.ask(PARTITION).text
        )
    for n in range(101, 107):
        source.park(origin_offset=n)
    with pytest.MonkeyPatch.context() as patch, serve() as console:
        patch.setattr(parked_offsets, "MOST", 3)
        said = words(console.ask(PARTITION).text)
    assert "From 104 on, what was parked is not drawn: it is too much" in said
    assert "103: 103 parked" in said


def live(until: int, settled: int, *runs: tuple[int, int], floor: int = 100) -> PartitionFacts:
    """A partition whose run has settled so many offsets above its floor; the commit lists runs."""
    part = {
        "floor": floor, "position": until, "open_count": until - floor - settled,
        "gap_count": settled, "handler": "bill", "oldest_open_ms": None,
    }  # fmt: skip
    seen = Progress("billing", "orders", 1, "source", 0, until, 90, runs)
    return PartitionFacts(seen, Live(0, part, [], [], [], 0), "run")


def kinds_of(facts: PartitionFacts, most: int = CELLS) -> list[str]:
    """The cells of its map."""
    found = ack_map(facts, most=most)
    assert found is not None
    return [each.kind for each in found.cells]


def test_what_the_last_commit_does_not_list_is_not_known_yet() -> None:
    """A run says how many are settled above its floor, not which: an open one may be among them."""
    facts = live(108, 4, (95, 98), (102, 104))
    found = ack_map(facts)
    assert found is not None
    assert found.unknown == 2
    # The floor is open for certain.
    unknown = "unknown"
    assert kinds_of(facts) == ["open", unknown, "settled", "settled", *[unknown] * 4]
    row = {"record": "orders/1/105", "running_s": 1.0, "left_s": 9.0}
    assert kinds_of(replace(facts, running=[row]))[5] == "running"
    # As soon as the commit lists all of them, they are what they look like.
    assert unknown not in kinds_of(live(108, 2, (95, 98), (102, 104)))
    # What the commit lists below the run's floor counts for nothing.
    assert unknown in kinds_of(live(108, 3, (90, 100), (102, 104)))
    assert kinds_of(facts, 2) == ["partly", unknown]


def test_the_page_says_that_something_is_not_known_yet(run: Run, kafka: Kafka) -> None:
    """With how many; in the map, in words, and in the legend."""
    kafka.looks = []
    has(run, partition(position=110, gap_count=3))
    with console_of(run.listen) as console:
        page = console.ask("/c/kafka/partitions/billing/orders/0").text
    assert "3 more are settled above the floor than the last commit lists" in words(page)
    assert "101 to 109: not known yet: open, settled since the last commit" in words(page)
    assert '<li><i class="unknown"></i> not known yet' in page


def test_a_cell_of_many_offsets_names_the_first_that_were_parked() -> None:
    """And how many more; the worst of all is what it looks like."""
    facts = live(10_100, 0)
    parked = [ParkedOffset(101 + n, "disposed", f"{101 + n}") for n in range(10)]
    found = ack_map(facts, [*parked, ParkedOffset(5_000, "dead", "5000")], most=10)
    assert found is not None
    first, other = found.cells[0], found.cells[4]
    assert first.parked == (101, 102, 103)
    assert len(first.parked) == NAMED
    assert first.text == "101; 102; 103; 7 more were parked"
    # Others of the cell are open, which is worse than what was redriven.
    assert first.kind == "open"
    assert (other.kind, other.parked) == ("dead", (5_000,))
