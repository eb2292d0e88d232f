"""Host: one handler process as its worker sees it, from its start to its death.

Only the pool's thread changes a host; the owner thread reads `in_flight` and `progress`. The
process is killed with its whole session, so that what a handler has started ends with it.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.outcomes import Failed, Released
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.process.pipe import PipeEnd
from ackfloor.runtime.executors.process.shared_progress import SharedProgress, new_area
from ackfloor.runtime.executors.process.start_arguments import Plan

COMMAND = (sys.executable, "-m", "ackfloor.runtime.executors.process.child")


class LaneRun:
    """Records of one work that were handed over together, or what is handed over without one.

    Attributes:
        work: None where there is none.
        count: how many of them the process still has.
    """

    __slots__ = ("count", "work")

    def __init__(self, work: Work | None) -> None:
        self.work = work
        self.count = 0


class Handed:
    """What a process was given under one number: the deliveries of one call.

    Attributes:
        bytes: of their values.
        deliveries: one, or a batch's items.
        lane_run: of one that is no batch.
    """

    __slots__ = ("bytes", "deliveries", "lane_run")

    def __init__(self, deliveries: Sequence[TrackedDelivery], lane_run: LaneRun) -> None:
        self.deliveries = deliveries
        self.lane_run = lane_run
        self.bytes = sum(delivery.size for delivery in deliveries)

    def note_times(self, progress: SharedProgress, number: int) -> None:
        """Copy the times of their call from the shared progress."""
        started_s, extended_s = progress.started_s(number), progress.extended_s(number)
        for delivery in self.deliveries:
            delivery.started_s = started_s
            delivery.extended_until_s = extended_s


class Host:
    """One process.

    Attributes:
        in_flight: number -> what it was given and has not finished (a record, or a batch of them),
            in the order of the numbers.
        ready: it has imported the handler and takes records.
        ending: it gets no more records, and ends when nothing is in flight.
        kill_reason: the number of what it is killed for, and what becomes of that.
        recalled: it was asked for what it has not begun, and has not answered.
        given: how many records it has been given for good.
        bytes: of the values in flight.
        trouble: why it could not start.
    """

    def __init__(self, number: int, plan: Plan) -> None:
        ours, theirs = socket.socketpair()
        area = new_area()
        argv = [*COMMAND, str(theirs.fileno()), str(area), str(os.getpid())]
        try:
            # A session of its own: signals to the worker's group are the worker's business.
            self.process = subprocess.Popen(
                argv,
                pass_fds=(theirs.fileno(), area),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.progress = SharedProgress(area)
        finally:
            theirs.close()
            os.close(area)
        self.number = number
        self.pipe = PipeEnd(ours)
        self.in_flight: dict[int, Handed] = {}
        self.ready = False
        self.ending = False
        self.kill_reason: tuple[int, Failed | Released] | None = None
        self.killed = False
        self.recalled = False
        self.given = 0
        self.bytes = 0
        self.trouble = ""
        self._next = 0
        self._end_sent = False
        self.pipe.send(pickle.dumps(plan))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def current(self) -> int | None:
        """The number of the record that its handler is at, None where it is at none."""
        number = self.progress.begun_until - 1
        return number if number >= self.progress.ended_until and number in self.in_flight else None

    def hand(self, handed: Handed) -> int:
        """Register what is about to be sent to it; returns its number."""
        number = self._next
        self._next += 1
        for delivery in handed.deliveries:
            delivery.started_s = 0.0
        self.in_flight[number] = handed
        self.given += len(handed.deliveries)
        self.bytes += handed.bytes
        return number

    def take_back(self, number: int) -> Handed | None:
        """Unregister something that it has not handled."""
        handed = self.in_flight.get(number)
        if handed is not None:
            self.forget(number)
            self.given -= len(handed.deliveries)
        return handed

    def forget(self, number: int) -> None:
        """It has ended."""
        self.bytes -= self.in_flight.pop(number).bytes

    def note_times(self, number: int) -> Sequence[TrackedDelivery]:
        """Copy the times in its shared progress to its deliveries; returns them."""
        handed = self.in_flight[number]
        handed.note_times(self.progress, number)
        return handed.deliveries

    def recall(self) -> None:
        """Ask for what it has not begun."""
        if not self.recalled and len(self.in_flight) > (self.current() is not None):
            self.recalled = True
            self.pipe.send(pickle.dumps(("recall",)))

    def end(self) -> None:
        """Let it end in order; nothing is in flight."""
        self.ending = True
        if not self._end_sent:
            self._end_sent = True
            self.pipe.send(pickle.dumps(("end",)))

    def kill(self) -> None:
        """End it at once, with everything it has started."""
        if not self.killed:
            self.killed = True
            with suppress(ProcessLookupError, PermissionError):
                self.process.kill()
                os.killpg(self.pid, signal.SIGKILL)

    def is_dead(self) -> bool:
        """Whether the kernel says that it is gone, threads and all."""
        return self.process.poll() is not None
