"""Crashes: how many worker processes have died with a record in flight; the supervisor's count.

The rules for what becomes of a suspect are the core's (core/scheduling/crash_suspects.py). Here is
the one that makes them just: a record comes to the count that condemns it only by a death with
nothing else in flight. What an abandoned handler works at is in flight as well.

The count lives as long as the run and is the run's own: workers of another host learn for
themselves.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from ackfloor.core.records.outcomes import CONDEMNED
from ackfloor.runtime.supervision import channel
from ackfloor.runtime.supervision.in_flight_memory import RecordId

#: Suspects that are remembered; those with fewest deaths are forgotten first.
MOST = 4_000
#: Suspects that are named in the log.
NAMED = 5


@dataclass(slots=True)
class _Count:
    crashes: int = 0
    how: str = ""


class Crashes:
    """The suspects of one run.

    Attributes:
        edition: changes whenever workers should be told.
    """

    def __init__(self) -> None:
        self._counts: dict[RecordId, _Count] = {}
        self.edition = 0

    def died(self, in_flight: Sequence[RecordId], how: str) -> bool:
        """A process died; returns whether that condemns a record."""
        for record in in_flight:
            count = self._counts.setdefault(record, _Count())
            if count.crashes + 1 < CONDEMNED or len(in_flight) == 1:
                count.crashes += 1
            count.how = how
        excess = len(self._counts) - MOST
        if excess > 0:
            for record in sorted(self._counts, key=lambda r: self._counts[r].crashes)[:excess]:
                del self._counts[record]
        self.edition += 1
        return any(self._counts[r].crashes >= CONDEMNED for r in in_flight if r in self._counts)

    def over(self, body: bytes) -> None:
        """A worker reports records that are suspects no longer."""
        for topic, partition, offset in json.loads(body):
            self._counts.pop(RecordId(topic, partition, offset), None)

    def tell(self, connection: Connection) -> bool:
        """Tell a worker of all suspects; False where it has no room for that now."""
        groups: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
        for record, count in self._counts.items():
            group = groups.setdefault((record.topic, record.partition, count.how), [])
            group.append((record.offset, count.crashes))
        body = json.dumps([(*group, records) for group, records in groups.items()]).encode()
        return channel.send_if_room(connection, channel.Kind.SUSPECTS, body)


def suspects_in(body: bytes) -> Iterator[tuple[str, int, int, int, str]]:
    """What `Crashes.tell` said, as `Suspects.learn` takes it."""
    for topic, partition, how, records in json.loads(body):
        for offset, crashes in records:
            yield topic, partition, offset, crashes, how


def exit_text(code: int) -> str:
    """A process's exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def named(records: Sequence[RecordId]) -> str:
    """Some records by name, and how many more there are."""
    text = ", ".join(f"{r.topic}/{r.partition}/{r.offset}" for r in records[:NAMED])
    more = len(records) - NAMED
    return f"{text} and {more} more" if more > 0 else text
