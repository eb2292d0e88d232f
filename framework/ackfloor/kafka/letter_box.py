"""A dead-letter topic as its reader meets it: its letters, and which of them are disposed of."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from ackfloor.core.dispositions import Disposed, dispositions_topic_of
from ackfloor.core.errors import SettingError
from ackfloor.core.redrive import DeadLetter, Wanted
from ackfloor.core.redrive_jobs import JobNote
from ackfloor.core.topics import parse_topic
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.dead_letters import DeadLetterReader, Gone
from ackfloor.kafka.dispositions import DispositionsLog
from ackfloor.kafka.options import KafkaOptions
from ackfloor.kafka.redrive_topics import described, known_topics
from ackfloor.kafka.topic_ids import printed


class Letter(NamedTuple):
    """A dead letter, and whether it was replayed, discarded or archived before."""

    letter: DeadLetter
    disposed: bool


class LetterBoxes:
    """The dead-letter topics of a cluster.

    Raises:
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._admin, self._partitions = known_topics(options)

    def names(self, group: str | None = None) -> list[str]:
        """Dead-letter topics of ours, of one consumer group or of all."""
        found = ((name, parse_topic(name)) for name in sorted(self._partitions))
        return [
            name
            for name, parsed in found
            if parsed is not None and parsed.kind == "dlq" and group in {None, parsed.group}
        ]

    def letters(self, topic: str) -> Iterator[Letter]:
        """Every dead letter of a topic, in the order of its partitions.

        Raises:
            RedriveRefused: there is no such topic, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        partitions, disposed = self._known(topic), self._disposed(topic)
        reader = DeadLetterReader(self._options, topic)
        try:
            for letter in reader.all(partitions):
                yield Letter(letter, disposed.hides(letter.partition, letter.offset))
        finally:
            reader.close()

    def at(self, topic: str, wanted: Wanted) -> Iterator[Letter | Gone]:
        """The dead letters at these places, in order; those that are not there as `Gone`.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        count = self._known(topic)
        for partition in wanted:
            if partition >= count:
                raise RedriveRefused(
                    f"{topic} has no partition {partition}: it has {count}, from 0"
                )
        disposed = self._disposed(topic)
        reader = DeadLetterReader(self._options, topic)
        try:
            for found in reader.read(wanted):
                if isinstance(found, Gone):
                    yield found
                else:
                    yield Letter(found, disposed.hides(found.partition, found.offset))
        finally:
            reader.close()

    def letter(self, topic: str, partition: int, offset: int) -> Letter:
        """One dead letter.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        found = next(self.at(topic, {partition: array("q", [offset])}))
        if isinstance(found, Gone):
            raise RedriveRefused(
                f"{topic}/{partition}/{offset} is not there: removed by retention, or never written"
            )
        return found

    def jobs(self, topic: str) -> list[JobNote]:
        """The jobs that worked on a topic, latest first.

        Raises:
            RedriveRefused: there is no such topic, or its dispositions may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self._known(topic)
        return self._disposed(topic).jobs.latest_first()

    def _known(self, topic: str) -> int:
        if topic not in self._partitions:
            raise RedriveRefused(f"{topic} does not exist, or this user may not see it")
        return self._partitions[topic]

    def _disposed(self, topic: str) -> Disposed:
        try:
            log = dispositions_topic_of(topic)
        except SettingError:  # of another tool: nobody notes what was done with its letters
            return Disposed("")
        if log not in self._partitions:
            return Disposed("")
        disposed = Disposed(printed(described(self._admin, [topic])[topic].topic_id))
        DispositionsLog(self._options, log, self._partitions[log]).read_on(disposed)
        return disposed
