"""Group progress: lag and open records of groups, read without joining or changing anything.

Commits are read first and log ends after, so that no end is older than its commit. Committed
positions are read through a consumer: the admin client's request can crash the process, see
`kafka/groups/group_commits.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from ackfloor.core.acks.progress import Progress, oddity
from ackfloor.core.acks.settled import settled_by
from ackfloor.core.parking.topic_names import ParsedTopic, parse_topic
from ackfloor.core.records.record import StartPosition
from ackfloor.dead_letters.kafka.open_dead_letters import OpenDeadLetters
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import DENIED, error_text, kafka_error, look_failed
from ackfloor.kafka.client.client_options import KafkaOptions, quiet_consumer
from ackfloor.kafka.groups.coordinator import coordinated
from ackfloor.kafka.topics.log_ranges import END, FIRST, Place, answered_offsets
from ackfloor.kafka.topics.topic_ids import answer

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 10.0


class Members(NamedTuple):
    """The members of a group.

    Attributes:
        known: whether the broker answered.
        number: how many there are.
        owners: partition -> its member, as client@host.
    """

    known: bool
    number: int
    owners: Mapping[Place, str]


@contextmanager
def looking_at(options: KafkaOptions, group: str) -> Iterator[Callable[[], list[Progress]]]:
    """A function that reads the progress of one group each time it is called."""
    with closing(ProgressReader(options)) as reader:
        yield lambda: reader.of(group, reader.members(group).owners)


class ProgressReader:
    """Reads the progress of groups.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._connection = AdminConnection(options)
        self._admin = self._connection.admin
        self._consumers: dict[str, Consumer] = {}
        self._dead_letters = OpenDeadLetters(options, self._ids)

    def close(self) -> None:
        """Close the clients."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def reach(self) -> None:
        """Check that a broker answers.

        Raises:
            KafkaUnreachable: no broker answers.
        """
        self._connection.metadata()

    def groups(self) -> list[str]:
        """The groups that have retry or dead-letter topics.

        Raises:
            KafkaUnreachable: no broker answers.
        """
        found = map(parse_topic, self._topics())
        return sorted({parsed.group for parsed in found if parsed is not None})

    def members(self, group: str) -> Members:
        """The members of a group now; unknown, without an error, if the broker can't tell.

        Raises:
            AckfloorError: this user may not describe the group. Checked here, because a client
                without the permission to read commits fails only at its time limit and without the
                reason.
        """
        futures = self._admin.describe_consumer_groups([group], request_timeout=REQUEST_S)
        try:
            found = futures[group].result(REQUEST_S + 1.0)
        except (KafkaException, TimeoutError) as exc:
            error = kafka_error(exc)
            if error is not None and error.code() in DENIED:
                raise look_failed(f"grant DESCRIBE on group {group}", exc) from exc
            log.debug("group %s can't be described: %s", group, error_text(exc))
            return Members(False, 0, {})
        owners = {
            (place.topic, place.partition): f"{member.client_id}@{member.host.lstrip('/')}"
            for member in found.members
            for place in (member.assignment.topic_partitions or ())
        }
        return Members(True, len(found.members), owners)

    def of(self, group: str, owners: Mapping[Place, str]) -> list[Progress]:
        """The progress in every partition of topics that a group reads, has committed or parks in.

        Args:
            group: the consumer group, which may be another tool's.
            owners: `Members.owners`.

        Raises:
            KafkaUnreachable: no broker answers.
            AckfloorError: this user may not read the group.
        """
        topics = self._topics()
        commits = self._commits(group, topics)
        theirs = {topic for topic, _ in (*commits, *owners)}
        kinds = _kinds(group, topics, theirs)
        places = [(name, number) for name in kinds for number in topics[name]]
        ids = self._ids({commit.topic for commit in commits.values()})
        starts, ends = self._ends(places, FIRST), self._ends(places, END)
        found = []
        for place in places:
            topic, partition = place
            seen = Progress(
                group, topic, partition, kinds[topic], starts.get(place), ends.get(place),
                owner=_owner(place, owners, topics),
            )  # fmt: skip
            found.append(_with_commit(seen, commits.get(place), ids.get(topic, "")))
        return self._dead_letters.completed(found, topics)

    def _topics(self) -> dict[str, list[int]]:
        """The partitions of every topic that this user may see."""
        topics = self._connection.metadata().topics
        return {name: sorted(topic.partitions) for name, topic in sorted(topics.items())}

    def _commits(
        self, group: str, topics: Mapping[str, Collection[int]]
    ) -> dict[Place, TopicPartition]:
        """The group's commits by partition."""
        asked = [
            TopicPartition(name, number)
            for name, numbers in topics.items()
            if (parsed := parse_topic(name)) is None or parsed.group == group
            for number in numbers
        ]
        if not asked:
            return {}
        try:
            consumer = self._consumer(group)
            found = coordinated(lambda: consumer.committed(asked, timeout=REQUEST_S), REQUEST_S)
        except KafkaException as exc:
            raise look_failed(f"commits of group {group!r} can't be read", exc) from exc
        return {
            (each.topic, each.partition): each
            for each in found
            if each.offset >= 0 or each.error is not None
        }

    def _consumer(self, group: str) -> Consumer:
        """A consumer that reads a group's commits; it never joins."""
        if group not in self._consumers:
            self._consumers[group] = quiet_consumer(self._options, group)
        return self._consumers[group]

    def _ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of topics, without those that the broker does not tell."""
        if not topics:
            return {}
        futures: Mapping[str, Future[Any]] = self._admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=REQUEST_S
        )
        return {name: answer(name, future, REQUEST_S).topic_id for name, future in futures.items()}

    def _ends(self, places: Collection[Place], spec: OffsetSpec) -> dict[Place, int]:
        """The start or end of each log, without those that the broker does not tell."""
        if not places:
            return {}
        futures = self._admin.list_offsets(
            {TopicPartition(*place): spec for place in places},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_S,
        )
        return answered_offsets(futures, time.monotonic() + REQUEST_S + 1.0)


def _kinds(group: str, topics: Collection[str], theirs: Collection[str]) -> dict[str, str]:
    """The topics of a group with their kinds, in the order in which they are shown.

    Args:
        topics: all of the cluster.
        theirs: those that the group reads or has commits for.
    """
    ours = {
        name: parsed
        for name in topics
        if (parsed := parse_topic(name)) is not None
        and parsed.group == group
        and parsed.kind != "dispositions"
    }
    sources = {parsed.topic for parsed in ours.values()} & set(topics)
    wanted = {*sources, *theirs, *ours} & set(topics)
    return {
        name: ours[name].kind if name in ours else "source"
        for name in sorted(wanted, key=lambda name: _order(name, ours.get(name)))
    }


def _owner(place: Place, owners: Mapping[Place, str], topics: Mapping[str, Collection[int]]) -> str:
    """The member that has a partition; of a co-partitioned retry topic, the source's owner.

    A retry topic of which a partition has an owner of its own is shared out by the group.
    """
    parsed = parse_topic(place[0])
    shared = any((place[0], number) in owners for number in topics[place[0]])
    if shared or parsed is None or parsed.kind != "retry":
        return owners.get(place, "")
    count = len(topics.get(parsed.topic, ()))
    return owners.get((parsed.topic, place[1] % count), "") if count else ""


def _order(name: str, parsed: ParsedTopic | None) -> tuple[str, int, float]:
    if parsed is None:
        return name, 0, 0.0
    return parsed.topic, 2 if parsed.kind == "dlq" else 1, parsed.delay_s or 0.0


def _with_commit(seen: Progress, commit: TopicPartition | None, topic_id: str) -> Progress:
    """A partition's progress, completed from the group's commit."""
    if commit is None:
        return replace(seen, note=oddity(seen))
    if commit.error is not None:
        return replace(seen, note=f"its commit can't be read: {error_text(commit.error)}")
    settled = settled_by(
        StartPosition(
            seen.topic, seen.partition, commit.offset, metadata=commit.metadata or "",
            topic_id=topic_id, log_end=seen.end,
        )
    )  # fmt: skip
    full = replace(seen, floor=commit.offset, runs=settled.runs)
    notes = [oddity(full)]
    if settled.refused:
        notes.append(f"its metadata is ignored: {settled.refused}")
    return replace(full, note="; ".join(filter(None, notes)))
