"""SharedProgress: shared memory that shows which record a handler's process is at, also when dead.

A process that has died can't say what it was doing, and one that is stuck can't be asked. So it
writes two numbers into an area that the worker made and it inherited: which record it has begun,
and which it has ended. A record that was begun and not ended is the one that it died with, or the
one that it is at. When it began and ended each stands there as well, so a record that simply
returns costs no message at all: the worker looks from time to time.

Each word is written by one side alone, and one word is written at once or not at all. The process
writes the times of a record *before* the number that announces them, and what it has to say of a
record (an outcome that is no acknowledgement) before it counts that record as ended.

The worker writes which record has timed out (`expire`). That races with `extend`: the worker writes
the timeout and *then* reads the extension again; the process writes the extension and *then* reads
the timeout. So an extension that returned True is always honoured.
"""

from __future__ import annotations

import mmap
import os
import tempfile

#: Records that one process may have at a time; their times are kept in a ring of as many places.
MOST_IN_HAND = 256

_BEGUN, _ENDED, _EXPIRED = 0, 1, 2
_STARTED = 8
_FINISHED = _STARTED + MOST_IN_HAND
_EXTENDED = _FINISHED + MOST_IN_HAND
_BYTES = (_EXTENDED + MOST_IN_HAND) * 8


def new_area() -> int:
    """A descriptor of memory for one process's progress, to be inherited by the process."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ackfloor-progress")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _BYTES)
    return descriptor


class SharedProgress:
    """One process's progress, from either side. Records go by their numbers, which count up.

    Args:
        descriptor: of an area; it stays the caller's.
    """

    __slots__ = ("_cells", "_memory", "_times")

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BYTES)
        view = memoryview(self._memory)
        self._cells = view.cast("Q")
        self._times = view.cast("d")

    # The process writes.

    def begin(self, number: int, now_s: float) -> None:
        """A record's handler starts."""
        place = number % MOST_IN_HAND
        self._times[_STARTED + place] = now_s
        self._times[_EXTENDED + place] = 0.0
        self._cells[_BEGUN] = number + 1

    def finish(self, number: int, now_s: float) -> None:
        """A record's handler has ended; its outcome may follow as a message."""
        self._times[_FINISHED + number % MOST_IN_HAND] = now_s

    def end(self, number: int) -> None:
        """The outcomes of a record, and of those before it, have been sent."""
        self._cells[_ENDED] = number + 1

    def extend(self, number: int, until_s: float) -> bool:
        """Move a record's deadline; False where its time is up already."""
        self._times[_EXTENDED + number % MOST_IN_HAND] = until_s
        return bool(self._cells[_EXPIRED] != number + 1)

    # The worker reads, and writes the timeout.

    @property
    def begun_until(self) -> int:
        """One more than the number of the last record that was begun; 0 for none."""
        return int(self._cells[_BEGUN])

    @property
    def ended_until(self) -> int:
        """One more than the number of the last record that has ended; 0 for none."""
        return int(self._cells[_ENDED])

    def started_s(self, number: int) -> float:
        """When a record was begun."""
        return float(self._times[_STARTED + number % MOST_IN_HAND])

    def finished_s(self, number: int) -> float:
        """When a record's handler ended."""
        return float(self._times[_FINISHED + number % MOST_IN_HAND])

    def extended_s(self, number: int) -> float:
        """To when a record's deadline was moved; 0 where it was not."""
        return float(self._times[_EXTENDED + number % MOST_IN_HAND])

    def expire(self, number: int | None) -> None:
        """Write that a record has timed out; None takes it back."""
        self._cells[_EXPIRED] = 0 if number is None else number + 1

    def close(self) -> None:
        """Unmap the memory."""
        self._cells.release()
        self._times.release()
        self._memory.close()
