"""Notes of actions kept here, and not in Kafka."""

from __future__ import annotations

import pytest

from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionFilter, ActionLog, ActionNote, ActionState
from ackfloor.operations.action_notes import latest_of_each


class Notes:
    """What was noted; a test may have Kafka refuse it.

    Attributes:
        refuse_from: how many are taken before the next is refused.
        away: why nothing is taken or read; empty where it is.
    """

    def __init__(self) -> None:
        self.written: list[ActionNote] = []
        self.refuse_from = 1_000
        self.away = ""

    def write(self, note: ActionNote) -> None:
        """Note one."""
        if self.away or len(self.written) >= self.refuse_from:
            raise KafkaUnreachable(self.away or "no broker takes a connection")
        self.written.append(note)

    def newest(self, wanted: ActionFilter, limit: int) -> list[ActionNote]:
        """As Kafka has them."""
        if self.away:
            raise KafkaUnreachable(self.away)
        notes = latest_of_each(reversed(self.written))
        return [note for note in notes if wanted.matches(note)][:limit]

    @property
    def states(self) -> list[ActionState]:
        """How far the actions came."""
        return [note.state for note in self.written]


def kept_notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """From now on notes are kept in what is returned."""
    found = Notes()
    monkeypatch.setattr(ActionLog, "write", lambda _, note: found.write(note))
    monkeypatch.setattr(ActionLog, "newest", lambda _, *asked: found.newest(*asked))
    return found
