"""Records that wait in retry topics, read from Kafka when somebody looks, and no more than a part.

What is open is known by reading alone: the group's commits say what it has settled. So a look reads
so many records of a topic and for so long, and says where it has stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain
from typing import Final

from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.kafka.retry_topic import RetryTopics
from ackfloor.dead_letters.rules.cause_groups import CauseGroup, CauseGroups
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.dead_letters.rules.waiting import ChosenWaiting, choose_waiting, due_at_ms
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.operations import RetryAction
from ackfloor.operations.retry_moves import LEAVES
from ackfloor.redrive import Wanted
from ackfloor_monitoring.console.access.gate import Refused

#: Open records that a look reads of each retry topic, and of one that is asked for alone.
MOST_OF_EACH: Final = 20_000
MOST_OF_ONE: Final = 100_000
#: Seconds for all topics of a look, or the one of an order: within what a search may take.
LOOK_S: Final = 8.0
#: Records that are listed: more than a person reads.
ROWS: Final = 50


@dataclass(slots=True)
class Tier:
    """What was found out of one retry topic.

    Attributes:
        whole: whether all of its open records were read.
        error: why it can't be read.
    """

    topic: str
    group: str
    delay_s: float
    count: TierCount = field(default_factory=TierCount)
    whole: bool = False
    error: str = ""

    @property
    def open(self) -> int:
        """How many of the records that were read are open."""
        return self.count.waiting + self.count.due + self.count.behind


@dataclass(slots=True)
class Waiting:
    """What a look has found.

    Attributes:
        soonest: of those that match, the earliest due first, at most `ROWS`.
        count: how many match.
        topic_id: Kafka's id of the only topic that was looked at; "" where there are others.
    """

    tiers: list[Tier] = field(default_factory=list)
    soonest: list[DeadLetter] = field(default_factory=list)
    causes: Sequence[CauseGroup] = ()
    count: int = 0
    topic_id: str = ""


def look(options: KafkaOptions, topic: str, group: str, wanted: DeadLetterFilter) -> Waiting:
    """What waits in the retry topics of a cluster.

    Args:
        topic, group: only of these; "" for any.

    Raises:
        RedriveRefused: there is no such topic or group.
        KafkaUnreachable: the broker says nothing.
        ConfigError: a client property is refused.
    """
    topics = RetryTopics(options)
    if topic:
        topics.count(topic)
    names = [topic] if topic else topics.names(group or None)
    most, until_s = (MOST_OF_ONE if topic else MOST_OF_EACH), time.monotonic() + LOOK_S
    found, causes = Waiting(), CauseGroups()
    if len(names) == 1:
        # Before anything is read: what comes from a topic that was made anew is refused later.
        found.topic_id = topics.id_of(names[0])
    for name in names:
        tier = _tier_of(name)
        found.tiers.append(tier)
        reading = _Reading(tier, most, until_s)
        with closing(_open(topics, tier)) as records:
            matching = (each for each in reading.counted(records) if wanted.matches(each))
            found.soonest = nsmallest(
                ROWS, chain(found.soonest, _noted(matching, found, causes)), key=_by_time
            )
    found.causes = causes.largest_first()
    return found


@dataclass(slots=True)
class _Reading:
    """One topic's: counts what is read, and stops in time."""

    tier: Tier
    most: int
    until_s: float
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def counted(self, records: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """What is read, each counted."""
        if time.monotonic() >= self.until_s:
            return
        for number, record in enumerate(records):
            if number >= self.most or time.monotonic() >= self.until_s:
                return
            if (due_ms := due_at_ms(record)) is None:
                self.tier.count.add_behind()
            else:
                self.tier.count.add(due_ms, self.now_ms)
            yield record
        self.tier.whole = not self.tier.error


def _noted(
    matching: Iterable[DeadLetter], found: Waiting, causes: CauseGroups
) -> Iterator[DeadLetter]:
    for record in matching:
        found.count += 1
        causes.add(record)
        yield record


def _open(topics: RetryTopics, tier: Tier) -> Generator[DeadLetter, None, None]:
    """Its open records; of one that may not be read none, and why: the others are told."""
    try:
        yield from topics.open(tier.topic)
    except RedriveRefused as exc:
        tier.error = str(exc)


def _by_time(record: DeadLetter) -> tuple[float, str, int, int]:
    """The earliest due first; what no time makes due comes last."""
    due_ms = due_at_ms(record)
    place = record.topic, record.partition, record.offset
    return (math.inf if due_ms is None else due_ms, *place)


def _tier_of(topic: str) -> Tier:
    parsed = parse_topic(topic)
    assert parsed is not None
    return Tier(topic, parsed.group, parsed.delay_s or 0.0)


def retry_topic_id(options: KafkaOptions, topic: str) -> str:
    """Kafka's id of a retry topic; raises as `look` does."""
    return RetryTopics(options).id_of(topic)


def choose(
    options: KafkaOptions,
    action: RetryAction,
    topic: str,
    only: Wanted | None,
    matches: Callable[[DeadLetter], bool],
) -> ChosenWaiting:
    """Those open records of a retry topic that an order is about, as `ackfloor retry` chooses them.

    Raises:
        Refused: the topic has more of them than are read, or reading takes too long.
        RedriveRefused, KafkaUnreachable, ConfigError: as `look`.
    """
    with closing(_few(RetryTopics(options).open(topic), topic)) as records:
        return choose_waiting(records, only, matches, LEAVES[action])


def _few(records: Iterable[DeadLetter], topic: str) -> Generator[DeadLetter, None, None]:
    until_s = time.monotonic() + LOOK_S
    for number, record in enumerate(records):
        if number >= MOST_OF_ONE:
            why = f"more than {MOST_OF_ONE:,} records of {topic} are open: use `ackfloor retry`"
            raise Refused(400, why)
        if time.monotonic() >= until_s:
            why = f"{topic} could not be read within {LOOK_S:g} s"
            raise Refused(503, f"{why}: try again, or use `ackfloor retry`")
        yield record
