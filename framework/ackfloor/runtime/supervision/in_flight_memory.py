"""InFlightMemory: which records a worker process is handling, in memory that outlives the process.

A process that a record kills can't count that record. So before a handler starts, its slot writes
the record's identity into an area of shared memory that the supervisor made; the slot's next record
overwrites it, and a slot that goes idle clears it. When the process has died, whatever still stands
there was in flight.

A mark is one word of 64 bits: an index of (topic, partition), then the offset. One word is written
at once or not at all, and one word costs a record 80 ns. The names behind the indexes stand in the
same area, so no message of the process is needed. An offset takes 48 bits: a million records a
second for nine years.

The first word says that the process exited cleanly: its exit code can't, because `os._exit(1)` in
a handler looks like any failure. The next two are signs of life: how many turns its owner thread
has made, and in which of them it noticed that the machine's clock was set back.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque
from collections.abc import MutableMapping
from typing import NamedTuple, Protocol

OFFSET_BITS = 48
#: Indexes of (topic, partition); 0 is none.
MOST_PARTITIONS = 1 << (64 - OFFSET_BITS)
#: Slots that are watched; the records of any beyond are not.
MOST_SLOTS = 16_384
#: Bytes for the names of partitions. Untouched pages take no memory.
NAMES_BYTES = 8 * 1024 * 1024

_EXITED_CLEANLY = 0
_TURNS = 1
_SET_BACK = 2
_FIRST_SLOT = 3
#: Where slots that are not watched write; it is never read.
_BLIND = _FIRST_SLOT + MOST_SLOTS
_NAMES_LENGTH = _BLIND + 1
_NAMES_AT = (_NAMES_LENGTH + 1) * 8
_BYTES = _NAMES_AT + NAMES_BYTES


class RecordId(NamedTuple):
    """A record where it was read from: a source topic or a retry tier."""

    topic: str
    partition: int
    offset: int


class Signs(NamedTuple):
    """Signs of life of a process.

    Attributes:
        turns: how many turns its owner thread has made; 0 until the first turn begins.
        set_back: how many turns it had made when it last noticed that the clock was set back.
    """

    turns: int
    set_back: int


class Cells(Protocol):
    """Memory cells of 64 bits, one for each slot."""

    def __setitem__(self, slot: int, mark: int, /) -> None: ...


class Area:
    """The supervisor's side: one area for one worker process.

    Attributes:
        descriptor: of the memory, to be inherited by the process.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("ackfloor-marks")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, _BYTES)
        self._memory = mmap.mmap(self.descriptor, _BYTES, prot=mmap.PROT_READ)
        self._cells = memoryview(self._memory).cast("Q")

    def signs(self) -> Signs:
        """The process's signs of life."""
        # In this order: a turn that comes between makes it look as if all were well.
        set_back = self._cells[_SET_BACK]
        return Signs(self._cells[_TURNS], set_back)

    def assigned(self) -> bool:
        """Whether the process has ever had a partition."""
        return self._cells[_NAMES_LENGTH] > 0

    def in_flight(self) -> list[RecordId]:
        """What the process was handling when it died; nothing after a clean exit."""
        if self._cells[_EXITED_CLEANLY]:
            return []
        cells = self._cells[_FIRST_SLOT:_BLIND].tolist()
        length = min(self._cells[_NAMES_LENGTH], NAMES_BYTES)
        names = self._memory[_NAMES_AT : _NAMES_AT + length].decode().split("\n")
        found = {_record(mark, names) for mark in cells if mark}
        return sorted(record for record in found if record is not None)

    def close(self) -> None:
        """Unmap the memory."""
        self._cells.release()
        self._memory.close()
        os.close(self.descriptor)


class InFlightMemory:
    """The worker's side. Slots write `cells[slot] = assignment.mark | offset` themselves.

    Args:
        descriptor: the area's; None without a supervisor.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory: mmap.mmap | None = None
        self.cells: Cells
        if descriptor is None:
            nowhere: MutableMapping[int, int] = {}
            self.cells = nowhere
        else:
            self._memory = mmap.mmap(descriptor, _BYTES)
            # Processes that a handler starts must not inherit it.
            os.close(descriptor)
            self.cells = memoryview(self._memory).cast("Q")
        #: Places given back; `append` and `pop` are atomic, so any thread may.
        self._free: deque[int] = deque()
        self._fresh = iter(range(_FIRST_SLOT, _BLIND))
        self._indexes: dict[tuple[str, int], int] = {}
        self._turns = 0
        self._names_end = 0

    def take_place(self) -> int:
        """A place for the marks of a new slot."""
        try:
            return self._free.pop()
        except IndexError:
            return next(self._fresh, _BLIND)

    def give_back(self, place: int) -> None:
        """A slot is gone, and what it handled has ended."""
        self.cells[place] = 0
        if place != _BLIND:
            self._free.append(place)

    def of(self, topic: str, partition: int) -> int:
        """What the marks of one partition's records begin with; 0 where there is no more room."""
        if self._memory is None:
            return 0
        index = self._indexes.get((topic, partition))
        if index is None:
            index = self._name(topic, partition)
        return index << OFFSET_BITS

    def _name(self, topic: str, partition: int) -> int:
        assert self._memory is not None
        name = f"{partition} {topic}\n".encode()
        end = self._names_end + len(name)
        index = len(self._indexes) + 1
        if end > NAMES_BYTES or index >= MOST_PARTITIONS:
            return 0
        self._memory[_NAMES_AT + self._names_end : _NAMES_AT + end] = name
        # Last: what is read counts up to here.
        self.cells[_NAMES_LENGTH] = self._names_end = end
        self._indexes[topic, partition] = index
        return index

    def turned(self) -> None:
        """The owner thread begins a turn."""
        self._turns += 1
        self.cells[_TURNS] = self._turns

    def set_back(self) -> None:
        """The machine's clock was set back, in this turn; any thread may call it."""
        self.cells[_SET_BACK] = self._turns

    def exited_cleanly(self) -> None:
        """The process is about to exit cleanly: whatever still runs did not crash it."""
        self.cells[_EXITED_CLEANLY] = 1


def _record(mark: int, names: list[str]) -> RecordId | None:
    index, offset = mark >> OFFSET_BITS, mark & ((1 << OFFSET_BITS) - 1)
    if not 0 < index < len(names):
        return None
    partition, _, topic = names[index - 1].partition(" ")
    return RecordId(topic, int(partition), offset)
