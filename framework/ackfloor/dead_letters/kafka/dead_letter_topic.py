"""Dead-letter topics: their dead letters, which of them are disposed of, and their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
    """A dead letter, and whether it was replayed, discarded or archived before."""

    dead_letter: DeadLetter
    disposed: bool


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
    ) -> Iterator[StoredDeadLetter]:
        """Every dead letter of a topic, in the order of its partitions, or of one partition.

        Args:
            starts: partition -> the first offset to read, where not all are wanted.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        partitions = range(self.count(topic))
        if partition is not None:
            self.check(topic, [partition])
            partitions = range(partition, partition + 1)
        disposed = self._disposed(topic)
        with closing(DeadLetterReader(self._options, topic)) as reader:
            for dead_letter in reader.all(partitions, starts):
                yield StoredDeadLetter(
                    dead_letter, disposed.hides(dead_letter.partition, dead_letter.offset)
                )

    def at(self, topic: str, wanted: Wanted) -> Iterator[StoredDeadLetter | Gone]:
        """The dead letters at these places, in order; those that are not there as `Gone`.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self.count(topic)
        disposed = self._disposed(topic)
        for found in self.records(topic, wanted):
            if isinstance(found, Gone):
                yield found
            else:
                yield StoredDeadLetter(found, disposed.hides(found.partition, found.offset))

    def dead_letter(self, topic: str, partition: int, offset: int) -> StoredDeadLetter:
        """One dead letter.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        found = self.record(topic, partition, offset)
        return StoredDeadLetter(found, self._disposed(topic).hides(partition, offset))

    def notes(self, found: Sequence[StoredDeadLetter]) -> dict[str, DispositionNote]:
        """What was done with those that are disposed of, by their place; without what a newer
        version has written.

        Raises:
            RedriveRefused, KafkaUnreachable: the dispositions can't be read.
        """
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for dead_letter, disposed in found:
            if disposed:
                places[dead_letter.topic].append((dead_letter.partition, dead_letter.offset))
        notes: dict[str, DispositionNote] = {}
        for topic, wanted in places.items():
            read = DispositionNotes(self.id_of(topic), wanted)
            log = dispositions_topic_of(topic)
            DispositionsLog(self._options, log, self.partitions[log]).read_on(read)
            for (partition, offset), note in read.found.items():
                notes[f"{topic}/{partition}/{offset}"] = note
        return notes

    def jobs(self, topic: str) -> list[JobNote]:
        """The jobs that worked on a topic, latest first.

        Raises:
            RedriveRefused: there is no such topic, or its dispositions may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self.count(topic)
        return self._disposed(topic).jobs.latest_first()

    def _disposed(self, topic: str) -> Disposed:
        try:
            log = dispositions_topic_of(topic)
        except SettingError:  # of another tool, without dispositions
            return Disposed("")
        if log not in self.partitions:
            return Disposed("")
        disposed = Disposed(self.id_of(topic))
        DispositionsLog(self._options, log, self.partitions[log]).read_on(disposed)
        return disposed
