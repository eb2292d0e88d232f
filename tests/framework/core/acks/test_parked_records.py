"""ParkedRecords: what waits in a retry topic, as its partition's next owner finds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.acks.parked_records import ParkedRecords, with_parked
from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.record import Headers, ParkedRecord, Record, StartPosition

TIER = "orders--billing--retry-1m"
PARTITION = 2


def parked_headers(offset: int | None, partition: int = PARTITION, attempt: int = 1) -> Headers:
    """The headers of a record of `orders` that was parked."""
    envelope = Envelope(
        origin_topic="orders", origin_partition=partition, origin_offset=offset, attempt=attempt
    )
    return write_headers(envelope, [("own", b"1")])


@dataclass
class Waiting:
    """A record of the retry topic."""

    at: int
    name: bytes | None
    head: Headers | None
    epoch: int | None = 3

    def topic(self) -> str:
        return TIER

    def partition(self) -> int:
        return PARTITION

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return b"x"

    def headers(self) -> Headers | None:
        return self.head

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)

    def leader_epoch(self) -> int | None:
        return self.epoch

    def __len__(self) -> int:
        return 1


def waiting(at: int, name: bytes | None = b"k", epoch: int | None = 3) -> Waiting:
    """A record that was parked from offset 100 + its own."""
    return Waiting(at, name, parked_headers(100 + at), epoch)


def start(gaps: GapSet | None = None, **given: object) -> StartPosition:
    """The partition's start at position 10, with what a commit there settles."""
    text = "" if gaps is None else encode(gaps, TIER, PARTITION)[0]
    made = StartPosition(TIER, PARTITION, 10, metadata=text, topic_id="id", log_end=1_000)
    return made._replace(**given)  # type: ignore[arg-type]


def offsets(begun: StartPosition, *records: Record) -> list[int]:
    """Where those records are that count."""
    return [parked.offset for parked in with_parked(begun, "orders", records).parked]


SETTLED = GapSet(10, ((11, 13), (15, 16)), topic_hash("id"), 3)


def test_each_record_with_a_key_counts_in_the_logs_order() -> None:
    """Also two of one origin: the write of the first was not confirmed, and it was written."""
    begun = start()
    again = Waiting(12, b"", parked_headers(111, attempt=4))
    found = with_parked(begun, "orders", [waiting(10), waiting(11, b"l"), again])
    assert found == begun._replace(
        parked=(
            ParkedRecord(10, b"k", 110, 1),
            ParkedRecord(11, b"l", 111, 1),
            ParkedRecord(12, b"", 111, 4),
        )
    )
    assert with_parked(begun, "orders", []) == begun


@pytest.mark.parametrize(
    "record",
    [
        Waiting(10, None, parked_headers(110)),
        Waiting(10, b"k", None),
        Waiting(10, b"k", [("own", b"1")]),
        Waiting(10, b"k", parked_headers(110, partition=3)),
        Waiting(10, b"k", parked_headers(None)),
        Waiting(10, b"k", [*parked_headers(110), ("ackfloor.origin.topic", b"payments")]),
        Waiting(10, b"k", [*parked_headers(110), ("ackfloor.origin.partition", b"two")]),
        Waiting(10, b"k", [*parked_headers(110), ("ackfloor.origin.partition", None)]),
        Waiting(10, b"k", [*parked_headers(110), ("ackfloor.origin.offset", b"-1")]),
    ],
    ids=[
        "no key", "no headers", "not ours", "partition", "no offset", "topic", "unreadable",
        "no value", "negative",
    ],
)  # fmt: skip
def test_others_do_not_count(record: Waiting) -> None:
    """Without a key there is no order; what was not delivered here first belongs to another."""
    assert offsets(start(), record, waiting(11)) == [11]


def test_of_a_repeated_header_the_last_counts() -> None:
    """As for whoever reads the envelope; an attempt that can't be read is none."""
    twice = [*parked_headers(7, partition=9), *parked_headers(110), ("ackfloor.attempt", b"?")]
    found = with_parked(start(), "orders", [Waiting(10, b"k", twice)])
    assert found.parked == (ParkedRecord(10, b"k", 110, 0),)


class Unreadable(Waiting):
    """A record with the name of a header that is not UTF-8."""

    def headers(self) -> Headers | None:
        raise SystemError


def test_a_record_whose_headers_can_not_be_read_is_passed_over() -> None:
    """It says nothing of where it comes from."""
    assert offsets(start(), Unreadable(10, b"k", None), waiting(11)) == [11]


def test_what_the_commit_settles_is_left_out() -> None:
    """Nothing of what lies between the runs."""
    records = [waiting(at) for at in range(10, 18)]
    assert offsets(start(SETTLED), *records) == [10, 13, 14, 16, 17]


def test_offsets_need_not_be_consecutive() -> None:
    """Runs are passed whose records are gone; the log may also have moved beyond the commit."""
    assert offsets(start(SETTLED), waiting(14), waiting(15), waiting(900)) == [14, 900]
    moved = start(SETTLED, position=12, lost=2)
    assert offsets(moved, waiting(12), waiting(13), waiting(15)) == [13]


@pytest.mark.parametrize(
    "begun",
    [
        start(SETTLED, topic_id="another"),
        start(SETTLED, position=9),
        start(SETTLED, log_end=15),
        start(SETTLED, metadata="odd"),
    ],
    ids=["topic", "position", "end", "foreign"],
)
def test_metadata_in_doubt_settles_nothing(begun: StartPosition) -> None:
    """The worker that reads them will not skip them either."""
    assert offsets(begun, *[waiting(at) for at in range(10, 17)]) == list(range(10, 17))


def test_from_a_newer_leader_epoch_on_nothing_is_settled() -> None:
    """The log was truncated: other records have the offsets of those that were settled."""
    records = [waiting(11), waiting(12, epoch=4), waiting(15, epoch=4)]
    assert offsets(start(SETTLED), *records) == [12, 15]
    old = [waiting(11, epoch=None), waiting(12, epoch=-1), waiting(13, epoch=2)]
    assert offsets(start(SETTLED), *old) == [13]


def test_the_log_is_read_in_parts() -> None:
    """As the batches of a client come."""
    parked = ParkedRecords(start(SETTLED), "orders")

    def log() -> Iterator[Record]:
        yield from (waiting(10), waiting(11))

    parked.read(log())
    parked.read([waiting(12), waiting(13)])
    assert [each.offset for each in parked.start().parked] == [10, 13]


@given(st.sets(st.integers(10, 60)), st.sets(st.integers(10, 60)), st.integers(0, 60))
def test_nothing_that_is_open_is_missed(settled: set[int], there: set[int], newer: int) -> None:
    """Whatever is settled and whatever is there: a record counts unless both say it is settled."""
    runs: list[tuple[int, int]] = []
    for offset in sorted(settled):
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    records = [waiting(at, epoch=4 if at >= newer else 3) for at in sorted(there)]
    found = offsets(start(GapSet(10, tuple(runs), topic_hash("id"), 3)), *records)
    assert found == [at for at in sorted(there) if at >= newer or at not in settled]


@pytest.mark.parametrize(("text", "known"), [(b"17", 17), (b"-1", None), (b"then", None)])
def test_the_timestamp_of_the_first_one_tells_it_from_another_at_its_offset(
    text: bytes, known: int | None
) -> None:
    """Where it had one."""
    headers = [*parked_headers(110), ("ackfloor.origin.timestamp", text)]
    found = with_parked(start(), "orders", [Waiting(10, b"k", headers)])
    assert found.parked == (ParkedRecord(10, b"k", 110, 1, origin_timestamp_ms=known),)
