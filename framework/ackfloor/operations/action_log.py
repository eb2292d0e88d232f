"""ActionLog: writes the notes of actions to Kafka, and reads the newest of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final

from ackfloor.operations.action_notes import ActionFilter, ActionNote, latest_of_each, read_note

if TYPE_CHECKING:
    from ackfloor.kafka.client.client_options import KafkaOptions

#: Notes are in the order of their writing, and clocks of machines differ by less.
SKEW_MS: Final = 10 * 60 * 1000


class ActionLog:
    """The notes of a cluster. The Kafka client is loaded when it is first needed."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def write(self, note: ActionNote) -> None:
        """Write a note; it is confirmed by all in-sync replicas when this returns.

        The topic is created if it is missing.

        Raises:
            KafkaUnreachable: no broker answers.
            StartError: the topic does not and can't be created.
            PublishFailed: the record was not confirmed within 10 s.
            ConfigError: a client property is refused.
        """
        from ackfloor.operations.kafka.action_topic import write_record

        write_record(self._options, note.key, note.to_bytes())

    def newest(self, wanted: ActionFilter, limit: int) -> list[ActionNote]:
        """The newest notes that match, newest first; of a job that has ended, its end.

        Raises:
            KafkaUnreachable: no broker answers.
            RedriveRefused: the topic may not be read.
            ConfigError: a client property is refused.
        """
        with closing(self._newest_first(wanted.since_ms)) as notes:
            matching = (note for note in latest_of_each(notes) if wanted.matches(note))
            return list(islice(matching, limit))

    def _newest_first(self, since_ms: int | None) -> Generator[ActionNote, None, None]:
        from ackfloor.operations.kafka.action_reading import newest_first

        bound_ms = None if since_ms is None else since_ms - SKEW_MS
        with closing(newest_first(self._options, bound_ms)) as records:
            for _, value in records:
                if (note := read_note(value)) is not None:
                    yield note
