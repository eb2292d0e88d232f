"""Frames: what supervisor and workers say to each other about settings, as JSON.

The supervisor reads the file once and tells all workers what it found, so that they can't differ,
and so that a worker that is started anew goes by what the run goes by and not by a file that
somebody is editing. Secrets are among it: the channel is a private pair of sockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ackfloor.settings.layers import Assigned, Layer


@dataclass(frozen=True, slots=True)
class SettingsVersion:
    """What a worker is told.

    Attributes:
        number: which word it is; the answer repeats it.
        file: what counts of the settings file.
        above: what `config set` told the run.
        dry_run: only say what the change would end.
    """

    number: int
    file: Layer
    above: Layer
    dry_run: bool = False

    def to_bytes(self) -> bytes:
        """As a frame's body."""
        tree = {
            "number": self.number,
            "file": _listed(self.file),
            "above": _listed(self.above),
            "dry_run": self.dry_run,
        }
        return json.dumps(tree, default=str).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> SettingsVersion:
        """Read a frame's body."""
        tree = json.loads(body)
        return cls(tree["number"], _layer(tree["file"]), _layer(tree["above"]), tree["dry_run"])


class Overdue(NamedTuple):
    """A running delivery that a change would end at once."""

    handler: str
    topic: str
    partition: int
    offset: int
    attempt: int
    running_s: float


#: How many of them a worker names.
MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker answers.

    Attributes:
        number: of the word it answers.
        refused: why nothing was changed; empty where it was.
        ends: how many running deliveries the settings end at once.
        overdue: the longest running of them.
    """

    number: int
    refused: str = ""
    ends: int = 0
    overdue: tuple[Overdue, ...] = ()

    def to_bytes(self) -> bytes:
        """As a frame's body."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Answer:
        """Read a frame's body."""
        tree = json.loads(body)
        overdue = tuple(Overdue(*each) for each in tree["overdue"])
        return cls(tree["number"], tree["refused"], tree["ends"], overdue)


def _listed(layer: Layer) -> list[tuple[tuple[str, ...], Any, str]]:
    return [(path, value, source) for path, (value, source) in layer.items()]


def _layer(listed: Iterable[tuple[list[str], Any, str]]) -> Layer:
    return {tuple(path): Assigned(value, source) for path, value, source in listed}
