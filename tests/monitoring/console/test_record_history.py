"""What the index has of a record's way: retry topics and dispositions, bounded and redacted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor.core.records.envelope import Envelope, Reason
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopic
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    Disposition,
    read_disposition,
)
from ackfloor_monitoring.console.index import follower as following
from ackfloor_monitoring.console.index import index_writer
from ackfloor_monitoring.console.index.follower import Follower
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import SourcePlace, source_place
from ackfloor_monitoring.console.index.index_search import IndexSearch
from ackfloor_monitoring.console.index.index_writer import Change
from ackfloor_monitoring.console.index.record_history import DisposedBy, RecordHistory, Stage
from ackfloor_monitoring.console.pages.records.way import way_of
from tests.monitoring.console.dead_letter_source import DLQ, FIRST_MS, DeadLetterSource
from tests.monitoring.console.test_index import Index, StoppedReading, indexes

FIRST, SECOND = "orders--billing--retry-30s", "orders--billing--retry-5m"
ONE = SourcePlace("orders", 1, 7)


@pytest.fixture
def source() -> DeadLetterSource:
    """An empty dead-letter topic, and no retry topic."""
    return DeadLetterSource()


@pytest.fixture
def make(tmp_path: Path, source: DeadLetterSource) -> Iterator[Callable[..., Index]]:
    """Makes the index of these topics."""
    with indexes(tmp_path, source) as made:
        yield made


@contextmanager
def history(index: Index) -> Iterator[RecordHistory]:
    """What an index knows of records."""
    with closing(IndexFile(index.path, index.rules).to_read()) as connection:
        yield RecordHistory(IndexSearch(connection))


def stages(index: Index, source: SourcePlace = ONE) -> list[Stage]:
    """Those of one record."""
    with history(index) as found:
        return list(found.of(source))


def died_slowly(source: DeadLetterSource, offset: int = 7) -> None:
    """A record goes through two retry topics into the dead-letter topic."""
    source.park(origin_offset=offset, failed_at_ms=FIRST_MS)
    source.park("5m", origin_offset=offset, failed_at_ms=FIRST_MS + 60_000, attempt=2)
    source.bury(origin_offset=offset, failed_at_ms=FIRST_MS + 400_000, attempt=3)


def test_the_way_of_a_record_is_known(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """Each retry topic, the dead letter, who redrove it with which job, and where it went then."""
    source.park(origin_offset=6)
    died_slowly(source)
    source.dispose(0, 0, FIRST_MS + 500_000, by="ann@ops", job="20261121-f2c", target=FIRST)
    source.park(
        origin_offset=7, attempt=0, replays=1, reason=None, failed_at_ms=None, error_type=None
    )
    redriven = source.retries[FIRST].pop()
    source.retries[FIRST].append(replace(redriven, timestamp_ms=FIRST_MS + 500_001))
    index = make()
    index.read_on()
    found = stages(index)
    assert [each.place for each in found] == [
        f"{FIRST}/0/1", f"{SECOND}/0/0", f"{DLQ}/0/0", f"{FIRST}/0/2",
    ]  # fmt: skip
    assert [each.disposed for each in found if each.kind == "retry"] == [None] * 3
    assert found[2].disposed == DisposedBy(
        "replayed", "ann@ops", "20261121-f2c", FIRST, FIRST_MS + 500_000
    )
    assert found[0].due_ms == FIRST_MS + 60_000
    said = [each.text for each in way_of(found)]
    assert said == [
        "written as orders/1/7",
        f"attempt 1 failed on handler bill (error, shop.Boom): written as {FIRST}/0/1",
        f"attempt 2 failed on handler bill (error, shop.Boom): written as {SECOND}/0/0",
        f"attempt 3 failed on handler bill (exhausted, shop.Boom, no stock): written as {DLQ}/0/0",
        f"replayed to {FIRST} by ann@ops, job 20261121-f2c",
        f"redriven, once: written as {FIRST}/0/2",
    ]
    assert way_of(found)[0].at_ms == FIRST_MS - 60_000
    assert stages(index, SourcePlace("orders", 1, 8)) == []
    assert stages(index, SourcePlace("other", 1, 7)) == []


def test_a_topic_that_was_created_anew_has_no_life_of_the_earlier_one(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Each record has its own; the earlier one's is found by its copies alone."""
    source.bury(origin_offset=7, idempotency_key="old/1/7")
    source.bury(origin_offset=7, idempotency_key="new/1/7")
    # Of an older release, and of a record that was redriven to the source topic: not known.
    source.bury(origin_offset=7)
    source.bury(origin_offset=7, idempotency_key="new/1/3")
    index = make()

    def of_now() -> list[int]:
        index.read_on()
        return [each.offset for each in stages(index)]

    assert of_now() == [0, 1, 2, 3], "nobody has said which topic is there"
    source.source_id = "old"
    assert of_now() == [0, 2, 3]
    source.source_id = "new"
    assert of_now() == [1, 2, 3]
    with history(index) as found:
        assert found.has_earlier(ONE)
        assert not found.has_earlier(SourcePlace("orders", 1, 8))
        assert found.source_of(DLQ, 0, 0) == (ONE, "old", True)
        assert found.source_of(DLQ, 0, 1) == (ONE, "new", False)
        assert [each.offset for each in found.of(ONE, "old")] == [0]
        assert [each.offset for each in found.between(ONE, 8, "billing", 10)[0]] == [3]


def test_a_copy_leads_to_its_record(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """By its place in a retry topic or the dead-letter topic; any other place is none."""
    died_slowly(source)
    index = make()
    index.read_on()
    with history(index) as found:
        for place in ((FIRST, 0, 0), (SECOND, 0, 0), (DLQ, 0, 0)):
            assert found.source_of(*place) == (ONE, "", False)
        for place in ((FIRST, 0, 1), ("orders", 1, 7), (DLQ, 1, 0)):
            assert found.source_of(*place) is None


def test_a_hop_and_a_burial_come_behind_the_wait_that_they_end(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """They have the failure of what was there before: neither is another attempt."""
    for delay, due_ms in (("30s", 30_000), ("5m", 330_000)):
        source.park(
            delay, origin_offset=7, failed_at_ms=FIRST_MS, not_before_ms=FIRST_MS + due_ms,
            retry_at_ms=FIRST_MS + 330_000,
        )  # fmt: skip
    source.bury(origin_offset=7, failed_at_ms=FIRST_MS, attempt=1)
    index = make()
    index.read_on()
    found = stages(index)
    assert [each.topic for each in found] == [FIRST, SECOND, DLQ]
    steps = way_of(found)
    assert [each.at_ms for each in steps] == [FIRST_MS - 60_000, FIRST_MS, None, None]
    assert steps[2].text == f"moved on, without another attempt: written as {SECOND}/0/0"


def test_the_newest_stage_of_each_record_of_a_part(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Of one group, within bounds, and not those of which it has read a part."""
    died_slowly(source, 5)
    for offset in (3, 7, 9):
        source.park(origin_offset=offset)
    source.park(origin_offset=8, origin_partition=2)
    index = make()
    index.read_on()
    first = SourcePlace("orders", 1, 4)
    with history(index) as found:
        inside, until = found.between(first, 9, "billing", 100)
        assert [(each.source.offset, each.topic) for each in inside] == [(5, DLQ), (7, FIRST)]
        assert until == 9
        # Three stages of the first and one of the second are there: of the first all are read.
        assert [len(found.between(first, 9, "billing", n)[0]) for n in (1, 2, 3, 4)] == [0, 0, 1, 2]
        assert [found.between(first, 9, "billing", n)[1] for n in (2, 3, 4)] == [5, 7, 9]
        assert found.between(first, 9, "shipping", 100) == ([], 9)


def test_a_record_is_looked_up(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """By its place, without going through all of them."""
    died_slowly(source)
    index = make()
    index.read_on()
    with closing(IndexFile(index.path, index.rules).to_read()) as connection:
        asked = list[str]()
        connection.set_trace_callback(asked.append)
        found = RecordHistory(IndexSearch(connection))
        found.of(ONE)
        found.between(ONE, 20, "billing", 10)
        connection.set_trace_callback(None)
        for text in [each for each in asked if "retry_record" in each]:
            plan = [row[3] for row in connection.execute(f"explain query plan {text}")]
            used = [each for each in plan if "by_source" in each]
            assert len(used) == 2, plan
            assert not [each for each in plan if each.startswith("SCAN r")], plan


def test_dead_letters_do_not_wait_for_retry_topics(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retry topics are read for a while and in turn; at the end each record is there once."""
    for _ in range(50):
        source.park("30s")
        source.park("5m")
    source.bury(30)
    source.batch = 10
    index, looks = make(), list[float]()
    monkeypatch.setattr(following, "RETRY_S", 0.0)
    seen = list[tuple[int, int]]()

    def wait(seconds: float) -> bool:
        looks.append(seconds)
        with closing(IndexFile(index.path, index.rules).to_read()) as connection:
            counts = dict(
                connection.execute(
                    "select topic.name, count(*) from retry_record join topic on topic.id = topic "
                    "group by 1"
                )
            )
        seen.append((counts.get(FIRST, 0), counts.get(SECOND, 0)))
        if len(looks) == 1:
            assert index.search().progress().open == 30
            assert index.search().progress().taken_ms is not None
            with history(index) as found:
                assert found.followed().taken_ms is None
        if len(looks) == 12:
            source.bury()
        return len(looks) > 12

    file = IndexFile(index.path, index.rules)
    follower = Follower(lambda: source, file, index.rules, 1_000, wait)
    follower.follow(source)
    assert seen[:3] == [(10, 0), (10, 10), (20, 10)]
    assert seen[-1] == (50, 50)
    assert looks[0] == 0.0
    assert looks[-1] == following.EVERY_S
    assert index.search().progress().open == 31
    with history(index) as found:
        assert found.followed().taken_ms is not None


def test_what_is_stopped_in_the_middle_loses_and_doubles_nothing(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Of a retry topic, at each batch."""
    for n in range(100):
        source.park(origin_offset=n)
    source.batch = 20
    index = make()
    for stop in range(0, 100, 20):
        source.stop_after = stop
        with pytest.raises(StoppedReading):
            index.read_on()
    source.stop_after = None
    index.read_on()
    assert len(source.reads) == len(set(source.reads)) == 100
    with history(index) as found:
        every, _ = found.between(SourcePlace("orders", 1, 0), 1_000, "billing", 1_000)
    assert len(every) == 100


def test_records_of_retry_topics_are_bounded(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """The oldest go first, it says how many, and no dead letter goes for them."""
    for n in range(150):
        source.park("5m", origin_offset=1_000 + n, failed_at_ms=FIRST_MS + 10_000_000 + n)
    for n in range(150):
        source.park("30s", origin_offset=n, failed_at_ms=FIRST_MS + n)
    source.bury(100)
    source.batch = 50
    index = make(most=200)
    index.read_on()
    with history(index) as found:
        every, _ = found.between(SourcePlace("orders", 1, 0), 10_000, "billing", 1_000)
        kept = sorted(each.source.offset for each in every if each.kind == "retry")
        # Each dead letter is the newest stage of a record of the same place.
        assert [each for each in every if each.kind == "dlq"]
        left_out = found.followed().left_out
    with closing(IndexFile(index.path, index.rules).to_read()) as connection:
        [(count,)] = connection.execute("select count(*) from retry_record")
        [(oldest,)] = connection.execute("select min(at_ms) from retry_record")
    assert 150 <= count <= 200
    assert left_out == 300 - count
    assert oldest >= FIRST_MS + left_out
    assert kept[-150:] == [1_000 + n for n in range(150)]
    assert index.search().progress().left_out == 0
    assert len(index.places()) == 100


def test_what_retention_removes_goes(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """Of a retry topic, and who disposed of a dead letter with the dead letter."""
    for n in range(10):
        source.park(origin_offset=n)
    source.bury(3)
    for n in range(3):
        source.dispose(0, n)
    index = make()
    index.read_on()
    assert _count(index, "retry_record") == 10
    assert _count(index, "disposition") == 3
    source.retry_start, source.starts[0] = 8, 2
    index.read_on()
    assert _count(index, "retry_record") == 2
    assert _count(index, "disposition") == 1
    source.retries.clear()
    index.read_on()
    assert _count(index, "retry_record") == 0


def _count(index: Index, table: str) -> int:
    with closing(IndexFile(index.path, index.rules).to_read()) as connection:
        [(count,)] = connection.execute(f"select count(*) from {table}")
        return int(count)


def test_who_disposed_of_it_is_known_and_can_be_taken_back(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Said before or after it was read; of another topic of that name, or unreadable: nobody."""
    source.bury(4)
    source.dispose(0, 0, by="ann")
    index = make()
    index.read_on()
    source.dispose(0, 1, disposition=Disposition.DISCARDED, by="bob", target="")
    source.topic_id, before = "id-0", source.topic_id
    source.dispose(0, 2)
    source.topic_id = before
    source.notes.append((b"0/3", b'{"disposition": "melted", "topic_id": "id-1"}'))
    index.read_on()

    def by() -> list[DisposedBy | None]:
        return [stages(index, SourcePlace("orders", 1, n))[0].disposed for n in range(4)]

    assert by() == [
        DisposedBy("replayed", "ann", "job", "t", 1),
        DisposedBy("discarded", "bob", "job", "", 1),
        None,
        DisposedBy(),
    ]
    source.take_back(0, 0)
    index.read_on()
    assert by()[0] is None
    # Compaction leaves no trace of a disposition that was taken back.
    source.notes.clear()
    index.read_on()
    assert by() == [None] * 4
    assert _count(index, "disposition") == _count(index, "act") == 0


def test_a_disposition_that_sqlite_can_not_hold_stops_nothing(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Half a surrogate pair, which JSON may have, and the key of somebody else's record."""
    source.bury(3)
    half = "\ud83d"
    source.dispose(0, 0, by=f"ann{half}", job=f"{half}job", target=half)
    for key in (b"99999999999999999999/1", b"0/99999999999999999999"):
        source.notes.append((key, source.notes[0][1]))
    source.dispose(0, 1, by="bob")
    index = make()
    assert index.read_on() == ""
    assert index.places() == [(0, 2)]
    first, second, third = (
        stages(index, SourcePlace("orders", 1, n))[0].disposed for n in range(3)
    )
    assert first == DisposedBy("replayed", "ann?", "?job", "?", 1)
    assert second is not None
    assert (second.by, third) == ("bob", None)


def test_one_change_that_can_not_be_written_is_left_out(
    make: Callable[..., Index], source: DeadLetterSource, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and those behind it are noted."""
    source.bury(2)
    for offset in (0, 1):
        source.dispose(0, offset)
    index = make()
    index.read_on()
    ann = read_disposition(source.notes[0][1])
    assert ann is not None
    eve, disposed = replace(ann, by="eve"), Disposed("id-1")
    for key, value in source.notes:
        disposed.note(key, value)
    changes = [Change(0, 0, replace(eve, at_ms=2**63)), Change(0, 1, eve)]
    with closing(IndexFile(index.path, index.rules).to_write(source.cluster_id)) as connection:
        writer = index_writer.IndexWriter(connection, 100)
        number = writer.add_topic(DLQ, "id-1", "billing", "dlq")
        writer.note_changes(number, changes, disposed)
    found = [stages(index, SourcePlace("orders", 1, n))[0].disposed for n in (0, 1)]
    assert [each and each.by for each in found] == ["ann", "eve"]
    assert "the index leaves out who disposed of 0/0: " in caplog.text


def taken_ms(index: Index) -> int | None:
    """Of when the index is."""
    with history(index) as found:
        return found.followed().taken_ms


def test_an_index_is_of_when_kafka_was_asked(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while it is asked may be missing."""
    clock_ms, look = [1_000], source.look

    def slow_look() -> tuple[str, Sequence[FollowedTopic]]:
        found = look()
        clock_ms[0] += 500
        return found

    monkeypatch.setattr(source, "look", slow_look)
    monkeypatch.setattr(time, "time_ns", lambda: clock_ms[0] * 1_000_000)
    index, found = make(), list[int | None]()

    def wait(_seconds: float) -> bool:
        found.append(taken_ms(index))
        return len(found) == 2

    file = IndexFile(index.path, index.rules)
    Follower(lambda: source, file, index.rules, 1_000, wait).follow(source)
    assert found == [1_000, 1_500]


def test_an_index_is_not_of_when_a_topic_was_refused(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may have gone on to just that one."""
    index = make()
    for at_ms, denied, of_ms in ((1, "a--billing--dlq", None), (2, "", 2), (3, "b", 2), (4, "", 4)):
        source.denied = denied
        monkeypatch.setattr(time, "time_ns", lambda at_ms=at_ms: at_ms * 1_000_000)
        assert ("grant READ" in index.read_on()) is bool(denied)
        assert taken_ms(index) == of_ms


def test_dispositions_are_bounded(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many in memory at once, and as many in the file as dead letters are kept."""
    monkeypatch.setattr(following, "CHANGES", 7)
    largest = list[int]()
    note_changes = index_writer.IndexWriter.note_changes

    def noted(
        self: index_writer.IndexWriter, topic: int, changes: Sequence[Change], of: Disposed
    ) -> None:
        largest.append(len(changes))
        note_changes(self, topic, changes, of)

    monkeypatch.setattr(index_writer.IndexWriter, "note_changes", noted)
    source.bury(300)
    for n in range(300):
        source.dispose(0, n)
    index = make(most=100)
    index.read_on()
    assert max(largest) == 7
    assert _count(index, "disposition") <= 100
    assert index.places() == []
    # What is kept of dead letters beyond that is disposed of all the same, by nobody known.
    index.read_on()
    assert _count(index, "dead_letter") <= 100
    assert _count(index, "disposition") <= _count(index, "dead_letter")


def test_what_redaction_hides_is_not_in_the_file(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Nor is a payload, a key, a header or a message of a record of a retry topic."""
    for _ in range(50):
        source.park(
            key=b"the key", own=[("auth", b"a secret")], error_message="card 4111",
            error_stack="the stack",
        )  # fmt: skip
    index = make()
    index.read_on()
    stored = index.bytes()
    assert b"shop.Boom" in stored
    for hidden in (b"the key", b"the payload", b"a secret", b"card 4111", b"the stack"):
        assert hidden not in stored


@pytest.mark.parametrize(
    "origin",
    [
        (None, 0, 0), ("orders", None, 0), ("orders", 0, None), ("", 0, 0), ("o" * 250, 0, 0),
        ("orders", -1, 0), ("orders", 0, -1), ("orders", 0, 2**63),
    ],
)  # fmt: skip
def test_a_place_that_can_not_be_right_is_none(
    origin: tuple[str | None, int | None, int | None],
) -> None:
    """The record is in the index all the same, and no page is of it."""
    topic, partition, offset = origin
    died = Envelope(origin_topic=topic, origin_partition=partition, origin_offset=offset)
    assert source_place(died) is None


def test_source_topics_are_bounded(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header may name any: the first ones are kept."""
    monkeypatch.setattr(index_writer, "MOST_SOURCES", 3)
    for n in range(10):
        source.park(origin_topic=f"orders-{n}", origin_offset=1)
    index = make()
    index.read_on()
    assert _count(index, "source") == 3
    assert _count(index, "retry_record") == 10
    assert stages(index, SourcePlace("orders-2", 1, 1))
    assert not stages(index, SourcePlace("orders-3", 1, 1))


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[]", b"3", b'{"disposition": "replayed"}',
        b'{"disposition": "melted", "at": "2026-11-21T17:30:00.000Z"}',
        b'{"disposition": "replayed", "at": "now"}', b'{"disposition": "replayed", "at": 3}',
        b'{"disposition": "replayed", "at": "2026-11-21T17:30:00.000Z", "by": 3}',
    ],
)  # fmt: skip
def test_a_disposition_that_can_not_be_read_is_none(value: bytes | None) -> None:
    """Others write there as well."""
    assert read_disposition(value) is None


def test_one_that_waits_behind_another_did_not_fail(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """No time makes it due, and its own failure is none."""
    source.park(origin_offset=7, reason=Reason.BEHIND, attempt=0, error_type=None)
    index = make()
    index.read_on()
    [found] = stages(index)
    assert found.due_ms is None
    assert way_of([found])[1].text == (
        f"set behind another record of its key on handler bill, which failed: "
        f"written as {FIRST}/0/0"
    )
