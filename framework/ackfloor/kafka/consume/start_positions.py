"""Start positions: where each assigned partition is read from.

`auto.offset.reset` is `error`, so the client never chooses: every position is explicit and comes
from the same reply that carries the commit's metadata.

* A group without a commit starts at `earliest` or `latest`, and that position is committed at
  once. `latest` applies to a topic as the group first finds it: a partition that was added later
  holds records that came after, and a retry tier holds the group's own, so both are read from
  their start. The topics of a pattern count as one topic: one without a commit, where another has
  one, was created later.
* If a commit is below the log's start, reading goes on at the log's start, and the number of
  records that retention removed is reported; records settled above that stay settled.
* A commit that names another topic id belongs to an earlier topic of this name: start again.
* The log's range is only needed to check a commit. If a broker can't tell it (a leader whose
  followers are away, until enough of them are back), partitions with a commit do not wait for it.
* This runs inside rebalance callbacks, so it is brief: what is not told in time has no start yet,
  and is asked for again between two polls (see `late_starts`).
* Only the fetch can tell whether a position is beyond the log's end, because the end known here
  stops at the first open transaction; see `Membership.restart`. And only the broker can tell
  whether the log was truncated below a position and written again: see `Membership.look`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.acks.gap_set import MetadataRefused, decode, topic_hash
from ackfloor.core.acks.leader_epochs import UNKNOWN
from ackfloor.core.parking.topic_names import TopicTemplates
from ackfloor.core.records.record import StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.kafka.topics.topic_ids import Described

log = logging.getLogger("ackfloor.kafka")

Start = Literal["earliest", "latest"]
#: How long a request is repeated that nothing goes on without. A topic that was just created has no
#: leader yet; a worker that gives up is replaced and begins anew.
PATIENCE_S = 30.0
REQUEST_S = 10.0
#: How long the one request for all log ranges may take. The rest is asked for one by one.
TOGETHER_S = 1.0
#: How long all partitions with a commit together may wait for their log ranges. The rest start
#: without one.
RANGES_S = 2.0
#: How long all partitions without a commit together may wait for what decides where they start.
STARTS_S = 2.0
SHORTEST_REQUEST_S = 0.5
PAUSE_S = 0.2

T = TypeVar("T")
#: Asks for log ranges within so many seconds; returns those that were answered.
AskRanges = Callable[[Collection[Place], float], Mapping[Place, Range]]


class Unanswered(SourceFailed):
    """The brokers did not tell something in time."""


class _Logs:
    """The ranges of some logs: from one request for all, the rest from requests for each."""

    def __init__(
        self,
        ask_ranges: AskRanges,
        partitions: Sequence[TopicPartition],
        reads: Callable[[str], Consumer],
    ) -> None:
        self._ranges = ask_ranges([(each.topic, each.partition) for each in partitions], TOGETHER_S)
        self._reads = reads
        #: The time is over: else each of many logs would take a request's time.
        self._over = False

    def range(self, partition: TopicPartition, until_s: float) -> Range:
        """The first position of a log and its end; see `log_range`."""
        place = partition.topic, partition.partition
        if place in self._ranges:
            return self._ranges[place]
        if self._over:
            raise Unanswered(f"the log range of {place[0]}/{place[1]} could not be read in time")
        try:
            return log_range(self._reads(partition.topic), *place, until_s)
        except Unanswered:
            self._over = time.monotonic() >= until_s
            raise

    def range_in_time(self, partition: TopicPartition, until_s: float) -> Range | None:
        """The range of a log whose partition has a commit; None if it is not known in time."""
        if (
            time.monotonic() >= until_s
            and (partition.topic, partition.partition) not in self._ranges
        ):
            return None
        try:
            return self.range(partition, until_s)
        except SourceFailed as exc:
            log.warning("%s; going on at the committed position, %d", exc, partition.offset)
            return None


def resolve(
    consumer: Consumer,
    committed: Sequence[TopicPartition],
    start: Start,
    described: Mapping[str, Described],
    ask_ranges: AskRanges,
    reads: Callable[[str], Consumer] | None = None,
    left_out: Callable[[Unanswered], None] = lambda _: None,
    siblings: Mapping[str, Collection[str]] | None = None,
    within_s: float = STARTS_S,
) -> list[StartPosition]:
    """The start position of each assigned partition that is told in time.

    Args:
        consumer: the member of the group.
        committed: the group's committed position of each.
        described: the broker's description of each topic.
        ask_ranges: asks for the ranges of many logs at once.
        reads: the client that reads a topic, if that is not the member.
        left_out: called with the reason where a partition has none.
        siblings: topic that a pattern matches -> all topics of its pattern, which are described
            as well.
        within_s: how long to wait for what the starts depend on.

    Raises:
        SourceFailed: the group refuses to answer.
    """
    until_s = time.monotonic() + within_s
    fresh = {found.topic for found in committed if found.offset < 0}
    earlier = (
        _begun(consumer, fresh, described, siblings or {}, ask_ranges, until_s)
        if start == "latest"
        else _Begun()
    )
    for why in earlier.unanswered.values():
        left_out(why)
    ranges_until_s = time.monotonic() + RANGES_S
    logs = _Logs(ask_ranges, committed, reads or (lambda _: consumer))
    until_s = time.monotonic() + within_s
    starts: list[StartPosition] = []
    for found in committed:
        if found.offset < 0:
            if found.topic in earlier.unanswered:
                continue
            # Another worker of the group may have committed it meanwhile.
            has = earlier.positions.get(found.topic, {})
            found = has.get(found.partition, found)  # noqa: PLW2901
        first: Start = "earliest" if found.topic in earlier.positions else start
        topic_id = described[found.topic].topic_id
        try:
            starts.append(_resolve(logs, found, first, topic_id, until_s, ranges_until_s))
        except Unanswered as exc:
            left_out(exc)
    return starts


class _Begun(NamedTuple):
    """What is known of topics without a commit for some of their partitions.

    Attributes:
        positions: topics that the group has read before -> its committed positions of each.
        unanswered: topics of which it is not known -> why.
    """

    positions: Mapping[str, Mapping[int, TopicPartition]] = MappingProxyType({})
    unanswered: Mapping[str, Unanswered] = MappingProxyType({})


def _begun(
    consumer: Consumer,
    fresh: Collection[str],
    described: Mapping[str, Described],
    siblings: Mapping[str, Collection[str]],
    ask_ranges: AskRanges,
    until_s: float,
) -> _Begun:
    """Which topics the group has read before.

    For a new topic, or a new pattern with all its topics, the log ends are committed for all
    partitions at once, whichever members get them: from then on a partition without a commit is one
    that was added later. Workers that start together all find the topic new; the first commit
    counts for all, and the others read it and overwrite nothing.
    """
    positions: dict[str, Mapping[int, TopicPartition]] = {}
    unanswered: dict[str, Unanswered] = {}
    for together in {frozenset(siblings.get(topic, (topic,))) for topic in fresh}:
        new = together.intersection(fresh)
        if any(TopicTemplates().parse(topic) is not None for topic in new):
            positions.update({topic: {} for topic in new})
            continue
        try:
            places = [place for t in sorted(together) for place in _places(t, described, new)]
            all_ = [TopicPartition(*place) for place in places]
            has = _has_or_begins(consumer, all_, ask_ranges, until_s)
        except Unanswered as exc:
            unanswered.update(dict.fromkeys(new, exc))
            continue
        if has:
            for topic in new:
                positions[topic] = {p.partition: p for p in has if p.topic == topic}
    return _Begun(positions, unanswered)


def _has_or_begins(
    consumer: Consumer, partitions: Sequence[TopicPartition], ask_ranges: AskRanges, until_s: float
) -> list[TopicPartition]:
    """The committed positions of those that have one; if none has, commits the ends of all."""
    if has := _has(consumer, partitions, until_s):
        return has
    logs = _Logs(ask_ranges, partitions, lambda _: consumer)
    ends = [TopicPartition(p.topic, p.partition, logs.range(p, until_s)[1]) for p in partitions]
    if not (has := _has(consumer, partitions, until_s)):
        consumer.commit(offsets=ends, asynchronous=True)
    return has


def _places(topic: str, described: Mapping[str, Described], fresh: Collection[str]) -> list[Place]:
    """The partitions of a topic; none of a sibling that was deleted."""
    found = described[topic]
    if not found.partitions and (topic in fresh or not found.absent):
        # An added partition can't be told from one of a new topic: don't guess.
        raise Unanswered(f"the broker does not tell which partitions {topic} has")
    return [(topic, partition) for partition in found.partitions]


def _has(
    consumer: Consumer, partitions: Sequence[TopicPartition], until_s: float
) -> list[TopicPartition]:
    """The committed positions of those that have one."""
    found = _committed(consumer, partitions, until_s)
    return [partition for partition in found if partition.offset >= 0]


def _committed(
    consumer: Consumer, partitions: Sequence[TopicPartition], until_s: float
) -> list[TopicPartition]:
    found: list[TopicPartition] = ask(
        "the committed positions",
        lambda: consumer.committed(list(partitions), timeout=_allowed_s(until_s)),
        until_s,
    )
    for partition in found:
        if partition.error is not None:
            raise SourceFailed(f"committed position of {partition}: {error_text(partition.error)}")
    return found


def ask(what: str, question: Callable[[], T | None], until_s: float) -> T:
    """Repeat a request to the broker until it is answered; None counts as no answer.

    Raises:
        Unanswered: the time `until_s` (monotonic seconds) is over.
    """
    while True:
        try:
            answer = question()
        except KafkaException as exc:
            why = error_text(exc)
            log.debug("%s: %s", what, why)
        else:
            if answer is not None:
                return answer
            why = "no answer"
        if time.monotonic() >= until_s:
            raise Unanswered(f"{what} could not be read in time: {why}")
        time.sleep(PAUSE_S)


def _allowed_s(until_s: float) -> float:
    """How long one request may take: the client repeats it by itself within this time."""
    return min(REQUEST_S, max(SHORTEST_REQUEST_S, until_s - time.monotonic()))


def _resolve(
    logs: _Logs,
    committed: TopicPartition,
    start: Start,
    topic_id: str,
    until_s: float,
    ranges_until_s: float,
) -> StartPosition:
    topic, partition, position = committed.topic, committed.partition, committed.offset
    metadata = committed.metadata or ""
    given: Any = committed.leader_epoch  # None where it has none, whatever the client's hints say
    epoch = UNKNOWN if given is None else given
    there = StartPosition(
        topic, partition, position, True, metadata, 0, topic_id, leader_epoch=epoch
    )
    earlier = _of_an_earlier_topic(metadata, topic, partition, topic_id)
    if position < 0 or earlier:
        low, high = logs.range(committed, until_s)
    else:
        found = logs.range_in_time(committed, ranges_until_s)
        if found is None:
            return there
        low, high = found
    if position < 0:
        first = low if start == "earliest" else high
        return StartPosition(topic, partition, first, False, topic_id=topic_id, log_end=high)
    if earlier:
        log.error(
            "%s/%d: the group's position %d belongs to an earlier topic of this name; reading "
            "this one from its start, %d",
            topic, partition, position, low,
        )  # fmt: skip
        return StartPosition(topic, partition, low, False, topic_id=topic_id, log_end=high)
    if position < low:
        log.error(
            "%s/%d: retention has moved the log's start beyond the group's position, %d; going on "
            "at %d",
            topic, partition, position, low,
        )  # fmt: skip
        lost = low - position
        return StartPosition(topic, partition, low, False, metadata, lost, topic_id, high)
    return there._replace(log_end=high)


def _of_an_earlier_topic(metadata: str, topic: str, partition: int, topic_id: str) -> bool:
    try:
        hashed = decode(metadata, topic, partition).topic_hash
    except MetadataRefused:
        return False
    return bool(topic_id and hashed) and hashed != topic_hash(topic_id)


def log_range(
    consumer: Consumer, topic: str, partition: int, until_s: float | None = None
) -> tuple[int, int]:
    """The first position and the end of a partition's log.

    The end is before the first open transaction: it can lie below a position that a client of the
    group has committed which reads uncommitted records.

    Raises:
        Unanswered: the broker did not answer in time.
    """
    until = time.monotonic() + PATIENCE_S if until_s is None else until_s

    def question() -> tuple[int, int] | None:
        found: tuple[int, int] | None = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_allowed_s(until), cached=False
        )
        return found

    return ask(f"the log range of {topic}/{partition}", question, until)
