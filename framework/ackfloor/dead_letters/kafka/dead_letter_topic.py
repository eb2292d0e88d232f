"""Dead-letter topics: their dead letters, which of them are disposed of, and their jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.parked_topics import ParkedTopics
from ackfloor.dead_letters.kafka.record_reading import DeadLetterReader, Gone
from ackfloor.dead_letters.rules.disposition_notes import DispositionNotes
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    DispositionNote,
    dispositions_topic_of,
)
from ackfloor.dead_letters.rules.redrive_jobs import JobNote
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Wanted


class StoredDeadLetter(NamedTuple):
    """A dead letter, and what was done with it.

    Attributes:
        disposed: whether it was replayed, discarded or archived.
        note: by whom, when and how; None where it was not, where nobody asked for notes, or
            where a newer version has written it.
    """

    dead_letter: DeadLetter
    disposed: bool
    note: DispositionNote | None = None


class _Dispositions:
    """The dispositions of one topic, with or without their notes."""

    def __init__(self, topic_id: str, *, noted: bool) -> None:
        self.disposed = Disposed(topic_id)
        self._notes = DispositionNotes(topic_id) if noted else None

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        self.disposed.note(key, value)
        if self._notes is not None:
            self._notes.note(key, value)

    def of(self, dead_letter: DeadLetter) -> StoredDeadLetter:
        """A dead letter, with what was done with it."""
        place = dead_letter.partition, dead_letter.offset
        note = None if self._notes is None else self._notes.of(*place)
        return StoredDeadLetter(dead_letter, self.disposed.hides(*place), note)


class DeadLetterTopics(ParkedTopics):
    """The dead-letter topics of a cluster."""

    def names(self, group: str | None = None) -> list[str]:
        """Dead-letter topics of ours, of one consumer group or of all.

        Raises:
            RedriveRefused: the group has no topics.
        """
        return [name for name, _ in self.of_kind("dlq", group)]

    def names_of_source(self, source: str) -> dict[str, str]:
        """Dead-letter topics of ours for one source topic, and the consumer group of each."""
        found = self.of_kind("dlq", None)
        return {name: each.group for name, each in found if each.topic == source}

    def dead_letters(
        self,
        topic: str,
        partition: int | None = None,
        starts: Mapping[int, int] | None = None,
        *,
        noted: bool = False,
    ) -> Iterator[StoredDeadLetter]:
        """Every dead letter of a topic, in the order of its partitions, or of one partition.

        Args:
            starts: partition -> the first offset to read, where not all are wanted.
            noted: with what was done with each.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        partitions = range(self.count(topic))
        if partition is not None:
            self.check(topic, [partition])
            partitions = range(partition, partition + 1)
        dispositions = self._dispositions(topic, noted=noted)
        with closing(DeadLetterReader(self._options, topic)) as reader:
            for dead_letter in reader.all(partitions, starts):
                yield dispositions.of(dead_letter)

    def at(
        self, topic: str, wanted: Wanted, *, noted: bool = False
    ) -> Iterator[StoredDeadLetter | Gone]:
        """The dead letters at these places, in order; those that are not there as `Gone`.

        Args:
            noted: with what was done with each.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self.count(topic)
        dispositions = self._dispositions(topic, noted=noted)
        for found in self.records(topic, wanted):
            yield found if isinstance(found, Gone) else dispositions.of(found)

    def dead_letter(self, topic: str, partition: int, offset: int) -> StoredDeadLetter:
        """One dead letter, with what was done with it.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        found = self.record(topic, partition, offset)
        return self._dispositions(topic, noted=True).of(found)

    def jobs(self, topic: str) -> list[JobNote]:
        """The jobs that worked on a topic, latest first.

        Raises:
            RedriveRefused: there is no such topic, or its dispositions may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self.count(topic)
        return self._dispositions(topic).disposed.jobs.latest_first()

    def _dispositions(self, topic: str, *, noted: bool = False) -> _Dispositions:
        try:
            log = dispositions_topic_of(topic)
        except SettingError:  # of another tool, without dispositions
            return _Dispositions("", noted=noted)
        if log not in self.partitions:
            return _Dispositions("", noted=noted)
        dispositions = _Dispositions(self.id_of(topic), noted=noted)
        DispositionsLog(self._options, log, self.partitions[log]).read_on(dispositions)
        return dispositions
