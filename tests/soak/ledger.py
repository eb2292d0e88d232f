"""The ledger: what handlers did, written outside their processes, one line and one write each.

A file per process, opened for appending: a line that `write` has taken stays when the process is
killed a moment later. Times are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tests.written import whole_lines

#: topic, partition, offset: where a record was read from.
Place = tuple[str, int, int]
#: source topic, key, sequence number: what a record is, wherever it is read from.
Identity = tuple[str, str, int]


class Call(NamedTuple):
    """One start of a handler, and its end where it came to one.

    Attributes:
        ended_s: None where the process ended first.
        outcome: "ok", "late", "error" or "cancelled"; empty without an end.
    """

    identity: Identity
    place: Place
    attempt: int
    pid: int
    started_s: float
    wall_ms: int
    ended_s: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A partition came to a process or left it: "assigned", "revoked" or "lost"."""

    what: str
    at_s: float
    pid: int
    topic: str
    partition: int


class Pen:
    """Writes the lines of one process; the file is made by the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opening = Lock()
        self._file: int | None = None
        # Handlers on threads start at the same time; taking the next one is atomic.
        self._numbers = count(1)

    def start(self, identity: Identity, place: Place, attempt: int) -> int:
        """A handler starts; returns the number that its end is to name."""
        number = next(self._numbers)
        self._write("S", number, *identity, *place, attempt)
        return number

    def end(self, number: int, outcome: str) -> None:
        """A handler has ended."""
        self._write("E", number, outcome)

    def turn(self, what: str, topic: str, partition: int) -> None:
        """A partition came or left."""
        self._write("T", 0, what, topic, partition)

    def _write(self, kind: str, number: int, *fields: object) -> None:
        now = (time.monotonic_ns(), time.time_ns() // 1_000_000)
        line = "\t".join(map(str, (kind, number, os.getpid(), *now, *fields)))
        os.write(self._opened(), f"{line}\n".encode())

    def _opened(self) -> int:
        if self._file is None:
            with self._opening:
                if self._file is None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    name = self._folder / f"{os.getpid()}-{time.monotonic_ns()}.tsv"
                    self._file = os.open(name, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        return self._file


def read_calls(folder: Path) -> tuple[list[Call], list[Turn]]:
    """Everything that all processes wrote, in the order of time."""
    calls: list[Call] = []
    turns: list[Turn] = []
    for file in sorted(folder.glob("*.tsv")):
        _read_file(file, calls, turns)
    calls.sort(key=lambda call: call.started_s)
    turns.sort(key=lambda turn: turn.at_s)
    return calls, turns


def _read_file(file: Path, calls: list[Call], turns: list[Turn]) -> None:
    open_: dict[str, Call] = {}
    for kind, number, pid, at_ns, wall_ms, *rest in _lines(file):
        at_s = int(at_ns) / 1e9
        if kind == "S":
            open_[number] = _start(rest, int(pid), at_s, int(wall_ms))
        elif kind == "E":
            calls.append(open_.pop(number)._replace(ended_s=at_s, outcome=rest[0]))
        else:
            turns.append(Turn(rest[0], at_s, int(pid), rest[1], int(rest[2])))
    calls.extend(open_.values())


def _lines(file: Path) -> Iterator[list[str]]:
    # Half a line is of a process that was killed in it: what it was about to write is not known.
    for line in whole_lines(file):
        yield line.split("\t")


def _start(fields: Sequence[str], pid: int, at_s: float, wall_ms: int) -> Call:
    source, key, seq, topic, partition, offset, attempt = fields
    return Call(
        (source, key, int(seq)),
        (topic, int(partition), int(offset)),
        int(attempt),
        pid,
        at_s,
        wall_ms,
        None,
        "",
    )
