"""SettledCopies: whether a copy of a record in a retry topic still waits there.

Kafka keeps what was read from a topic, so a record of a retry topic stays in the index when it was
worked off. Which ones were, the group's commits of the retry topic say.

A record goes on before its copy is settled. So an index that is at least as new as the commits has
what it went on as, and an older one may not have it yet.
"""

from __future__ import annotations

from ackfloor.observe import Progress
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka


class SettledCopies:
    """What the commits of all groups say.

    Args:
        kafka: None where Kafka has not answered: then nothing is known.
    """

    def __init__(self, kafka: OfKafka | None) -> None:
        before = None if kafka is None else kafka.before
        self._progress = _progress_of(kafka)
        #: Nothing is newer than this in ms -> what they said, the newest answers first.
        self._answers = [
            (each.answered_ms, _progress_of(each)) for each in (kafka, before) if each is not None
        ]

    def progress(self, group: str, topic: str, partition: int) -> Progress | None:
        """A group's progress in a partition; None where it is not known."""
        return self._progress.get((group, topic, partition))

    def has(self, group: str, topic: str, partition: int, offset: int) -> bool | None:
        """Whether the group has settled an offset; None where it is not known."""
        progress = self.progress(group, topic, partition)
        if progress is None or progress.end is None:
            return None
        if progress.floor is None:
            return False
        return is_settled(progress, offset)

    def had(self, by_ms: int | None, group: str, topic: str, partition: int, offset: int) -> bool:
        """Whether the group had settled an offset by a time, for certain.

        Args:
            by_ms: up to when an index has everything, in wall-clock ms; None where that is not
                known.
        """
        at = group, topic, partition
        return by_ms is not None and any(
            answered_ms <= by_ms and at in found and is_settled(found[at], offset)
            for answered_ms, found in self._answers
        )


def _progress_of(kafka: OfKafka | None) -> dict[tuple[str, str, int], Progress]:
    return {
        (look.group, each.topic, each.partition): each
        for look in (kafka.looks if kafka is not None else ())
        for each in look.progress
    }


def is_settled(progress: Progress, offset: int) -> bool:
    """Whether an offset is below the committed floor, or settled above it."""
    if progress.floor is None:
        return False
    return offset < progress.floor or any(start <= offset < end for start, end in progress.runs)
