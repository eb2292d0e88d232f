"""Host: one handler process as its worker sees it, from its start to its death.

Only the keeper's thread changes a host; the owner thread reads `hands` and the face. The process is
killed with its whole session, so that what a handler has started goes with it.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.core.outcomes import Failed, Released
from ackfloor.runtime.process_face import Face, new_area
from ackfloor.runtime.process_pipe import PipeEnd
from ackfloor.runtime.process_plan import Plan

COMMAND = (sys.executable, "-m", "ackfloor.runtime.process_child")


class Visit:
    """Records of one lane that were handed over together, or one record without a lane.

    Attributes:
        run: the lane's; None without a lane.
        count: how many of them are in the process's hands.
    """

    __slots__ = ("count", "run")

    def __init__(self, run: Run | None) -> None:
        self.run = run
        self.count = 0


class Handed:
    """A delivery in the hands of a process."""

    __slots__ = ("delivery", "visit")

    def __init__(self, delivery: Delivery, visit: Visit) -> None:
        self.delivery = delivery
        self.visit = visit


class Host:
    """One process.

    Attributes:
        hands: number -> what it was given and has not ended, in the order of the numbers.
        ready: it has imported the handler and takes records.
        ending: it gets no more records, and ends when its hands are empty.
        doomed: the number of the record that it is killed for, and what becomes of that.
        recalled: it was asked for what it has not begun, and has not answered.
        given: how many records it has been given for good.
        bytes: of the values in its hands.
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
            self.face = Face(area)
        finally:
            theirs.close()
            os.close(area)
        self.number = number
        self.pipe = PipeEnd(ours)
        self.hands: dict[int, Handed] = {}
        self.ready = False
        self.ending = False
        self.doomed: tuple[int, Failed | Released] | None = None
        self.killed = False
        self.recalled = False
        self.given = 0
        self.bytes = 0
        self.trouble = ""
        self._next = 0
        self._told_to_end = False
        self.pipe.send(pickle.dumps(plan))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def current(self) -> int | None:
        """The number of the record that its handler is at, None where it is at none."""
        number = self.face.begun - 1
        return number if number >= self.face.ended and number in self.hands else None

    def hand(self, delivery: Delivery, visit: Visit) -> int:
        """Take a delivery into its hands; it has to be sent yet. Returns its number."""
        number = self._next
        self._next += 1
        delivery.started_s = 0.0
        self.hands[number] = Handed(delivery, visit)
        visit.count += 1
        self.given += 1
        self.bytes += delivery.size
        return number

    def take_back(self, number: int) -> Handed | None:
        """Take a record out of its hands that it has not handled."""
        handed = self.hands.get(number)
        if handed is not None:
            self.let_go(number)
            handed.visit.count -= 1
            self.given -= 1
        return handed

    def let_go(self, number: int) -> None:
        """A record has ended."""
        self.bytes -= self.hands.pop(number).delivery.size

    def recall(self) -> None:
        """Ask for what it has not begun."""
        if not self.recalled and len(self.hands) > (self.current() is not None):
            self.recalled = True
            self.pipe.send(pickle.dumps(("recall",)))

    def end(self) -> None:
        """Let it end in order; its hands are empty."""
        self.ending = True
        if not self._told_to_end:
            self._told_to_end = True
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
