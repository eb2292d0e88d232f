"""ProcessPool: the thread that starts, feeds, replaces and kills the processes of one handler.

Everything about the processes is done here, one thing after the other, so none of it needs a lock:
the owner thread puts what it wants into `orders` and rings. The pool's thread sleeps until a
process sends a message or dies, or the bell rings; while records are in flight it also looks by
itself, because one that simply returns is not worth a message.

A process is killed for one record: the one whose time is up. What becomes of that record is decided
when the process has been seen dead, and not before; whatever it did until then it did before its
retry can start. If the process had gone on to another record in that moment, that one is innocent:
it comes back unspent, as do all that were not begun. Nobody asked for the death: the record that
was begun and not ended is charged with it.

On Linux a process gets SIGKILL when the thread that started it ends. So this thread starts
them all, and ends last.
"""

from __future__ import annotations

import logging
import selectors
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ackfloor.core.records.envelope import Reason, fingerprint
from ackfloor.core.records.outcomes import PROCESS_CRASH, RELEASED, Failed, Released
from ackfloor.core.records.record import Failure
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.ports import ProcessMonitor
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.process.handler_process import Host
from ackfloor.runtime.executors.process.process_dispatch import ProcessWork, is_stuck
from ackfloor.runtime.executors.process.process_memory import resident_bytes
from ackfloor.runtime.executors.process.start_arguments import Plan
from ackfloor.runtime.executors.process.wire_format import outcome_from_dict
from ackfloor.runtime.logging.logs import named, place_of
from ackfloor.runtime.supervision.crashes import exit_text

log = logging.getLogger("ackfloor.worker")

#: Seconds between two looks while records are in hand: at first, and at most.
SHORTEST_LOOK_S = 0.01
LONGEST_LOOK_S = 0.05
#: Seconds between two looks at a process that is about to be dead.
DEATH_LOOK_S = 0.005
#: Seconds before another process is tried after one could not start: at first, and at most.
FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 10.0
#: Seconds between two looks at the memory of processes that have a limit.
MEMORY_LOOK_S = 0.05
#: Seconds that processes with nothing in hand have to leave their lifespan at the end.
LEAVE_S = 5.0


class ProcessPool:
    """The processes of one handler.

    Args:
        plan: what a process needs to begin.
        work: what they are given.
        inbox: where it is posted that it could not go on.
        clock: monotonic seconds.
        count: how many processes there should be.
        monitor: what hears from the processes.

    Attributes:
        hosts: the processes, a new tuple at each change; any thread may read it.
        orders: what the owner thread wants done, in order.
        first: set when the first process is ready, or could not start.
        trouble: why there is no process, "" where there is one or will be.
        recall: set to have all processes asked for what they have not begun.
    """

    def __init__(
        self,
        plan: Plan,
        work: ProcessWork,
        inbox: Inbox,
        clock: Callable[[], float],
        count: int,
        monitor: ProcessMonitor | None = None,
    ) -> None:
        self.hosts: tuple[Host, ...] = ()
        self.orders: deque[Callable[[], None]] = deque()
        self.first = threading.Event()
        self.trouble = ""
        self.recall = False
        self.count = count
        self._plan = plan
        self._handler = plan["handler"]
        self._work = work
        self._inbox = inbox
        self._monitor = monitor
        self._clock = clock
        self._started = 0
        self._failures = 0
        self._spawn_at_s = 0.0
        self._memory_look_s = 0.0
        #: Processes that held too much at the last look, and the records they were at.
        self._over_limit: set[tuple[Host, int]] = set()
        self._stop_at_s: float | None = None
        self._look_s = SHORTEST_LOOK_S
        self._moved = False
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ear, selectors.EVENT_READ)

    # Any thread.

    def ring(self) -> None:
        """Wake the pool's thread: it looks at its orders, and at the queue."""
        with suppress(OSError):
            self._bell.send(b"!")

    def order(self, what: Callable[[], None]) -> None:
        """Have the pool's thread do something."""
        self.orders.append(what)
        self.ring()

    # The pool's own thread.

    def run(self) -> None:
        """Run the processes until `stop` was called and the last of them has ended."""
        try:
            while self._stop_at_s is None or self.hosts:
                self._turn()
        except BaseException as exc:
            log.exception("handler %s: the thread that runs its processes failed", self._handler)
            for host in self.hosts:
                host.kill()
                with suppress(subprocess.TimeoutExpired):
                    host.process.wait(LEAVE_S)
                host.pipe.close()
            # Their records stay open: the worker is replaced.
            self.hosts = ()
            self._inbox.broken.append(exc)
        finally:
            self._selector.close()
            self._bell.close()
            self._ear.close()

    def _turn(self) -> None:
        self._moved = False
        while self.orders:
            self.orders.popleft()()
        for host in self.hosts:
            self._read_messages(host)
        self._watch()
        if self._stop_at_s is None:
            self._adjust_count()
        else:
            self._drain(self._stop_at_s)
        self._work.feed(self.hosts, self.count)
        self._sleep()

    def _sleep(self) -> None:
        for host in self.hosts:
            events = selectors.EVENT_READ
            if host.pipe.unsent():
                events |= selectors.EVENT_WRITE
            if not host.pipe.over and self._selector.get_key(host.pipe.socket).events != events:
                self._selector.modify(host.pipe.socket, events)
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._ear:
                with suppress(BlockingIOError):
                    self._ear.recv(4096)

    def _patience(self) -> float | None:
        """Seconds to sleep; None where nothing is due by itself."""
        hosts = self.hosts
        if self._moved:
            self._look_s = SHORTEST_LOOK_S
        if any(host.killed or host.pipe.over for host in hosts):
            return DEATH_LOOK_S
        if any(host.in_flight or host.ending for host in hosts):
            look_s = self._look_s
            self._look_s = min(look_s * 2, LONGEST_LOOK_S)
            return look_s
        if self._stop_at_s is not None:
            return 0.0
        return max(0.0, self._spawn_at_s - self._clock()) if len(hosts) < self.count else None

    # Messages and deaths of processes.

    def _read_messages(self, host: Host) -> None:
        """Take the messages and the progress of a process."""
        dead = host.is_dead()
        # Read before its messages: a record's message is sent before the record counts as ended.
        ended = host.progress.ended_until
        host.pipe.flush()
        try:
            for message in host.pipe.take():
                if "report" in message:
                    self._pass_on(host, message["report"])
                else:
                    self._handle_message(host, message)
        except (ValueError, LookupError, TypeError, AttributeError):
            log.exception("handler %s: process %d sent an invalid message", self._handler, host.pid)
            host.kill()
        self._moved |= self._work.passed(host, ended)
        if host.pipe.over and not dead:
            self._forget_pipe(host)
        if dead:
            self._handle_death(host)

    def _pass_on(self, host: Host, report: object) -> None:
        if self._monitor is not None:
            self._monitor.process_reported(host.pid, str(report))

    def _handle_message(self, host: Host, message: dict[str, Any]) -> None:
        self._moved = True
        if "ready" in message:
            host.ready = True
            self._failures = 0
            self.trouble = ""
            self.first.set()
        if "failed" in message:
            host.trouble = message["failed"]
        if "outputs" in message:
            self._work.published(host, message)
            return
        number = message.get("ended")
        if number is not None:
            self._work.passed(host, number)
        if "returned" in message:
            self._work.returned(host, message["returned"])
        if number is not None:
            self._work.complete(host, number, outcome_from_dict(message))
        elif "answered" in message or "late" in message:
            self._work.answered_by_hand(host, message)
        elif "spent" in message:
            self._retire(host)
            why = message["spent"]
            log.info("handler %s: process %d %s, and is replaced", self._handler, host.pid, why)
        elif "returned" in message:
            host.recalled = False

    def _handle_death(self, host: Host) -> None:
        """A process is dead: charge the record it was at, and take everything else back."""
        self._moved = True
        self._forget_pipe(host)
        host.pipe.close()
        at = host.current()
        self._work.returned(host, [number for number in host.in_flight if number != at])
        how = exit_text(host.process.returncode)
        if not host.ready:
            if self._stop_at_s is None and not host.killed:
                self._could_not_start(host.trouble or f"it {how} before it was ready")
        elif at is None:
            if not (host.ending or host.killed):
                log.error("handler %s: process %d %s", self._handler, host.pid, how)
                self._back_off()
        elif host.kill_reason is not None:
            number, outcome = host.kill_reason
            if number == at:
                self._work.died(host, at, outcome)
            else:
                self._work.returned(host, [at])
        else:
            first = host.in_flight[at].deliveries[0]
            text = "%s: handler %s: process %d %s in a handler"
            log.error(text, named(first), self._handler, host.pid, how, extra=place_of(first))
            self._work.died(host, at, crash(f"its process {how}"))
        if self._monitor is not None:
            self._monitor.process_ended(host.pid)
        # Last: until its record was answered, that counts as running.
        self.hosts = tuple(other for other in self.hosts if other is not host)

    def _forget_pipe(self, host: Host) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(host.pipe.socket)

    # What is done to them.

    def kill(self, delivery: TrackedDelivery) -> None:
        """A delivery's time is up, or its partition has left: kill the process that is at it."""
        for host in self.hosts:
            number = host.current()
            if number is None or host.killed or delivery not in host.in_flight[number].deliveries:
                continue
            deliveries = host.in_flight[number].deliveries
            waits = any(not other.closed for other in deliveries)
            if waits and delivery.assignment.closed:
                # The partitions of others in its batch have not left.
                return
            host.progress.expire(number)
            host.note_times(number)
            due_s = delivery.deadline_s
            if waits and (due_s is None or due_s > self._clock()):
                # Extended in the last moment, or the setting has changed.
                host.progress.expire(None)
                return
            others = len(deliveries) - 1
            log.warning(
                "%s%s: handler %s %s; its process %d is killed",
                named(delivery),
                "" if others == 0 else f" and {others} more",
                self._handler,
                "gave no answer within its consume timeout"
                if waits
                else "still ran after its partition was revoked",
                host.pid,
                extra=place_of(delivery),
            )
            self._kill_for(host, number, Failed(Failure("", ""), Reason.TIMEOUT))
            return

    def _kill_for(self, host: Host, number: int, outcome: Failed | Released) -> None:
        host.kill_reason = (number, outcome)
        host.kill()

    def stop(self, timeout_s: float) -> None:
        """Start nothing more; what runs after `timeout_s` seconds is killed and released."""
        self._work.stopping = True
        self._stop_at_s = self._clock() + timeout_s
        for host in self.hosts:
            host.recall()

    def _drain(self, stop_at_s: float) -> None:
        now_s = self._clock()
        for host in self.hosts:
            at = host.current()
            if now_s >= stop_at_s + LEAVE_S:
                host.kill()
            elif not host.in_flight:
                # Also one that is not ready: it may have entered its lifespan.
                host.end()
            elif now_s >= stop_at_s and at is not None:
                self._kill_for(host, at, RELEASED)

    def _watch(self) -> None:
        """Ask back what waits behind a record that takes long; look at the memory in use."""
        now_s = self._clock()
        # Taken only where it is set: what the owner thread sets in between would be lost.
        if recall := self.recall:
            self.recall = False
        for host in self.hosts:
            if recall or is_stuck(host, now_s):
                host.recall()
        limit = self._plan["memory_limit"]
        if limit is None or now_s < self._memory_look_s:
            return
        self._memory_look_s = now_s + MEMORY_LOOK_S
        before, self._over_limit = self._over_limit, set()
        for host in self.hosts:
            at = host.current()
            if at is None or host.killed or (resident := resident_bytes(host.pid)) <= limit:
                continue
            if (host, at) in before:
                text = f"its process held {resident:,} bytes, above its limit of {limit:,}"
                log.error("handler %s: %s, and is killed", self._handler, text)
                self._kill_for(host, at, crash(text, "memory"))
            # A record that only tips the scales is soon over, and its process replaced.
            self._over_limit.add((host, at))

    # How many there are.

    def _adjust_count(self) -> None:
        limit = self._work.max_records
        for host in self.hosts:
            if limit is not None and host.given >= limit:
                host.ending = True
        staying = [host for host in self.hosts if not host.ending and not host.killed]
        # Those that are quickest to leave go first.
        staying.sort(key=lambda host: (host.ready, len(host.in_flight)))
        for host in staying[: max(0, len(staying) - self.count)]:
            self._retire(host)
        for host in self.hosts:
            if host.ending and not host.in_flight:
                host.end()
        if len(staying) < self.count and self._clock() >= self._spawn_at_s:
            self._spawn()

    def _retire(self, host: Host) -> None:
        host.ending = True
        host.recall()

    def _spawn(self) -> None:
        self._started += 1
        try:
            host = Host(self._started, self._plan)
        except OSError as exc:
            self._could_not_start(str(exc))
            return
        self._selector.register(host.pipe.socket, selectors.EVENT_READ)
        self.hosts = (*self.hosts, host)
        self._moved = True

    def _could_not_start(self, why: str) -> None:
        self.trouble = why
        self.first.set()
        self._back_off()
        wait_s = self._spawn_at_s - self._clock()
        log.error(
            "handler %s: a process could not start: %s; again in %.1f s", self._handler, why, wait_s
        )

    def _back_off(self) -> None:
        wait_s = min(FIRST_BACKOFF_S * 2.0 ** min(self._failures, 10), LAST_BACKOFF_S)
        self._failures += 1
        self._spawn_at_s = self._clock() + wait_s


def crash(text: str, kind: str = "") -> Failed:
    """The outcome of a record that its process has died with."""
    frames = ((kind, ""),) if kind else ()
    return Failed(
        Failure(PROCESS_CRASH, text, "", fingerprint(PROCESS_CRASH, frames)), Reason.CRASH
    )
