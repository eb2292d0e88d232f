"""Faults: outside causes that keep records open, for readiness, logs and people.

A fault never stops work: the engine goes on trying. A fault has a kind (`parking`, `commit`,
`kafka`, `abandoned`, ...), and is one for each subject and cause (`causes.identify`). What it keeps
waiting are its members: the records that can't be parked, or the partitions that can't be
committed. It lasts from its first member to the end of its last one, and only the latest message is
kept. So there are as many faults as there are things to fix, however many records wait for each.

Invariant: a member is in one fault of its kind at most, that of its latest error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from ackfloor.core.messages.fault_causes import Identity, Trouble, mend_writing
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.state.snapshot import Fault

#: As many are shown at once; of the others the number.
MOST = 30
#: Of a commit's partitions so many are named.
MOST_PARTITIONS = 10


class _Group:
    """One fault and what waits for it."""

    __slots__ = ("members", "message", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.members: set[Hashable] = set()
        self.message = ""
        self.since_ms = since_ms


class Faults:
    """The faults in force."""

    __slots__ = ("_groups", "_of")

    def __init__(self) -> None:
        self._groups: dict[tuple[str, Identity], _Group] = {}
        #: (kind, member) -> its fault's identity.
        self._of: dict[tuple[str, Hashable], Identity] = {}

    def put(self, kind: str, subject: str, message: str, now_ms: int) -> None:
        """Note a fault of which there is one for each subject of its kind."""
        self.wait(kind, subject, Identity(subject, ""), message, now_ms)

    def wait(
        self, kind: str, member: Hashable, identity: Identity, message: str, now_ms: int
    ) -> None:
        """Note a fault and what waits for it, keeping the time it was first seen.

        The member leaves the fault of this kind that it was in before.
        """
        before = self._of.get((kind, member))
        if before is not None and before != identity:
            self.clear(kind, member)
        self._of[kind, member] = identity
        group = self._groups.get((kind, identity))
        if group is None:
            group = self._groups[kind, identity] = _Group(now_ms)
        group.message = message
        group.members.add(member)

    def clear(self, kind: str, member: Hashable) -> None:
        """A member waits no longer; with its last one a fault has ended."""
        identity = self._of.pop((kind, member), None)
        if identity is None:
            return
        group = self._groups[kind, identity]
        group.members.discard(member)
        if not group.members:
            del self._groups[kind, identity]

    def replace(self, kind: str, troubles: Mapping[str, Trouble], now_ms: int) -> None:
        """These are the faults of a kind now; what stays keeps the time it was first seen."""
        for named, member in list(self._of):
            if named == kind and member not in troubles:
                self.clear(kind, member)
        for subject, trouble in troubles.items():
            identity = Identity(subject, trouble.cause)
            self.wait(kind, subject, identity, trouble.text, now_ms)

    def of(self, kind: str, member: Hashable) -> Identity | None:
        """The fault of a kind that a member waits for, if it does."""
        return self._of.get((kind, member))

    def all(self) -> tuple[Fault, ...]:
        """The faults in force: those that keep records from being parked first, then by age."""
        found = list(self._in_force())
        found.sort(key=lambda fault: (not fault.records, fault.since_ms))
        return tuple(found)

    def _in_force(self) -> Iterator[Fault]:
        groups = self._groups
        for (kind, identity), group in groups.items():
            subject, cause = identity
            since_ms, message, records = group.since_ms, group.message, 0
            if kind == "kafka" and ("parking", identity) in groups:
                # Shown with the records that wait for it.
                continue
            if kind == "parking":
                records = len(group.members)
                known = groups.get(("kafka", identity))
                why = f"{message}; {mend_writing(subject, cause)}"
                if known is not None:
                    # The brokers report the cause, perhaps since before the first record waited.
                    why, since_ms = known.message, min(since_ms, known.since_ms)
                what = "parked"
                if isinstance(next(iter(group.members)), OutputWrite):
                    what = "settled, because what they publish can't be written"
                message = f"{_counted(records, 'record')} can't be {what}: {why}"
            elif kind == "commit":
                message = f"{_partitions(group.members)}: {message}"
            yield Fault(kind, subject, message, since_ms, cause, records)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _partitions(members: set[Hashable]) -> str:
    """Of which partitions the commits are; a member is (topic, partition)."""
    numbers = sorted(member[1] for member in members if isinstance(member, tuple))
    named = ", ".join(map(str, numbers[:MOST_PARTITIONS]))
    more = len(numbers) - MOST_PARTITIONS
    noun = "partition" if len(numbers) == 1 else "partitions"
    return f"{noun} {named}" + (f" and {more} more" if more > 0 else "")
