"""Frames: the settings that the supervisor sends to its workers, and their answers, as JSON.

The supervisor reads the settings file once and sends its contents to all workers. So they can't
differ, and a worker that is started later uses the run's settings, not a file that somebody is
editing. The settings include secrets: the channel is a private pair of sockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ackfloor.settings.layers import Layer


@dataclass(frozen=True, slots=True)
class SettingsVersion:
    """One version of the run's settings, as the supervisor sends it to every worker.

    Attributes:
        number: of the version; the answer repeats it.
        file: the part of the settings file that is in force.
        above: the values given with `config set`.
        dry_run: change nothing; only answer which deliveries the change would end.
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


#: How many overdue deliveries a worker names at most.
MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's answer to a version.

    Attributes:
        number: of the version.
        refused: why the worker changed nothing; empty if it applied the version.
        ends: how many running deliveries the settings end at once.
        overdue: the longest running of these.
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
    from ackfloor.settings.layers import Assigned

    return {tuple(path): Assigned(value, source) for path, value, source in listed}
