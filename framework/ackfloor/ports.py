"""Ports: the protocols between the runtime and Kafka, the clock, executors and monitoring.

Each port has two implementations that pass the same contract suite (tests/contracts): the real
one (`kafka/`, `runtime/`) and the in-memory one (`testing/`). Everything named "listener" is
implemented by the runtime's loop and called *on the owner thread, from inside* the call that
caused it: `Source.poll` calls the source listener, `Sink.poll` the sink listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from ackfloor.control import Control, PageAnswer, PageRequest, SettingsState
from ackfloor.core.acks.progress import Progress
from ackfloor.core.messages.events import Event
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.records.record import (
    CommitPosition,
    Headers,
    Now,
    Record,
    StartPosition,
    TopicPartition,
)
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.snapshot import Snapshot


class Clock(Protocol):
    """The monotonic and the wall clock. The test kit's manual clock moves only when advanced."""

    def now(self) -> Now:
        """One reading of the monotonic and the wall clock."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds; the clock of deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let other threads run for a moment; the manual clock moves by as much."""
        ...


class SourceListener(Protocol):
    """Takes what a source reports. No method may raise."""

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        """Partitions were assigned; reading starts at the given positions."""
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are being revoked: drain, which may take up to the drain timeout, and commit.

        It runs on the owner thread inside `Source.poll`, so it may call `Source.commit` with
        `wait=True` and `Sink.poll`, and must not wait for anything that waits for the source.
        """
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were lost without a revoke: nothing may be committed for them."""
        ...

    def on_gone(self, partition: TopicPartition, position: int, end: int) -> None:
        """Retention has removed the records to be read next; reading goes on at `position`.

        All that was written to the log before now lies below `end`.
        """
        ...

    def on_deleted(self, ends: Sequence[tuple[TopicPartition, int]]) -> None:
        """The topics of these partitions were deleted; each comes with its last known log end.

        They are no longer read or committed. No other member has the records read from them.
        """
        ...

    def on_records(self, records: Sequence[Record]) -> None:
        """Records were read, in offset order within each partition."""
        ...

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        """A commit was answered: for each position None, or why it was refused."""
        ...

    def is_carried(self, partition: TopicPartition) -> bool:
        """Whether a transaction under way commits a partition or writes to it.

        The group's position of it may be out of date as soon as it is read, also where the
        partition was lost since the transaction began. So it is read and begun after the end.
        """
        ...


class Source(Protocol):
    """Reads records of a consumer group. Only the owner thread calls it."""

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics (all of which exist)."""
        ...

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:
        """Report rebalances, records and answers to commits.

        Waits at most `timeout_s` seconds for the first record and not at all for more. Each
        batch is reported before anything else can change the assignment. Returns the number of
        records reported. Transient errors of the broker are logged and not raised.

        With `ahead=False` the handlers have enough to do: most records of source topics may stay
        in the client's queue, and the call takes the whole `timeout_s`. Everything else is reported
        as usual.

        Raises:
            SourceFailed: the consumer can't go on (fatal error, or a listener raised).
            ConfigError: the group refuses a setting.
        """
        ...

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit positions (with their metadata) in one request.

        With `wait=False` the answer is reported through `on_committed` in a later `poll`; with
        `wait=True` before the call returns, within a bounded time.
        """
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching partitions; ignores those that are not assigned."""
        ...

    def resume(self, positions: Sequence[tuple[TopicPartition, int]]) -> None:
        """Fetch partitions again, each from the given position; ignores those not assigned."""
        ...

    def membership(self) -> object:
        """The group metadata of this member now, for a transaction that commits its offsets."""
        ...

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The consumer's own next positions, past trailing records that never arrive."""
        ...

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """The last known log end of each assigned partition, without asking the broker."""
        ...

    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions topics have, as far as the brokers have told; nothing is asked now.

        Of the topics that are read at least, a few seconds after there are more.
        """
        ...

    def poll_limit_s(self) -> float | None:
        """`max.poll.interval.ms` in seconds: after that without a poll the group expels the member.

        None where there is no such limit.
        """
        ...

    def troubles(self) -> Mapping[str, Trouble]:
        """Present faults at the brokers: a topic, the group or "brokers" -> the fault.

        As known from earlier answers; nothing is asked now.
        """
        ...

    def silent(self) -> bool:
        """Whether the group may have given this member's partitions to others, unheard.

        The next poll reports them as lost then; until then nothing more should be begun.
        """
        ...

    def look_closer(self) -> None:
        """Ask the brokers about `troubles` within a second, because a write failed or hangs."""
        ...

    def close(self) -> None:
        """Leave the group. The listener's `on_revoked` has run when it returns."""
        ...


class SinkListener(Protocol):
    """Takes what a sink reports about writes. No method may raise."""

    def on_published(self, writes: Sequence[PendingWrite]) -> None:
        """The broker confirmed these writes with acks=all."""
        ...

    def on_publish_failed(self, write: PendingWrite, error: str, *, too_large: bool) -> None:
        """The write failed, or it is not known whether it succeeded."""
        ...


class Sink(Protocol):
    """Writes parked records durably. Only the owner thread calls it."""

    def open(self, listener: SinkListener) -> None:
        """Get ready to write."""
        ...

    def publish(self, write: PendingWrite) -> None:
        """Start a write: topic, partition and headers are its own, key and value those of its
        delivery's record. Exactly one report follows, in a later `poll` or in this call."""
        ...

    def poll(self) -> None:
        """Report the writes that were confirmed or have failed, without waiting."""
        ...

    def pending(self) -> int:
        """How many writes have no report yet."""
        ...

    def close(self, timeout_s: float) -> None:
        """Deliver outstanding reports for up to `timeout_s` seconds, then stop."""
        ...


class Publisher(Protocol):
    """Writes records for `App.publish`; callable from any thread."""

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Start writing one record; `on_done` is called once, from any thread: with None if the
        broker confirmed the record, else with the error. Without a partition the key decides."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for outstanding confirmations, then stop."""
        ...


#: Where a handler is: "file:line function" of each frame, the innermost last.
Stack = tuple[str, ...]


class Executor(Protocol):
    """Runs the deliveries of one handler, at most `concurrency` at once.

    It queues a few more than it runs, and starts these in order as slots become free. It sets
    `started_s` before and `outcome` and `finished_s` after a delivery, and posts the delivery to
    the inbox it was made with; each work and each batch is posted after its deliveries. The owner
    thread may call any method at any time, and none but `start` and `stop` blocks.
    """

    def start(self) -> None:
        """Start the workers."""
        ...

    def submit(self, units: Sequence[Unit], *, last: bool = False) -> None:
        """Queue these, in this order, behind those submitted before.

        Args:
            units: what to run.
            last: start them only when nothing else is queued, whatever is submitted later.
        """
        ...

    def take_back(self) -> None:
        """Soon return what has not started: it is posted as `returned`, in order. A work that has
        begun starts no further record."""
        ...

    def queued(self) -> int:
        """How many units no slot has taken yet."""
        ...

    def running(self) -> Iterable[TrackedDelivery]:
        """The deliveries that occupy a slot: started, about to start (`started_s` is 0), or already
        ended by a timeout or a revoke while their handlers go on."""
        ...

    def stack(self, delivery: TrackedDelivery) -> Stack:
        """The stack of a running delivery's handler; empty if it is not known."""
        ...

    def cancel(self, delivery: TrackedDelivery) -> None:
        """Cancel the handler of a delivery that timed out, if possible, and in any case free its
        slot after the cancel grace at the latest. If handlers can be killed, the outcome is posted
        once the handler is dead."""
        ...

    def abandoned(self) -> int:
        """How many abandoned handlers are still running."""
        ...

    def resize(self, concurrency: int) -> None:
        """Run at most this many deliveries at once from now on. Additional slots start at once;
        surplus ones finish their delivery and take no other."""
        ...

    def stop(self, timeout_s: float) -> int:
        """Cancel what runs (it is posted as released), stop the workers, and return how many
        handlers still run after `timeout_s` seconds."""
        ...


class Observer(Protocol):
    """Gets every event. Must be quick and do no I/O. An exception does not stop the loop: it is
    counted, and logged once for each type."""

    def observe(self, events: Sequence[Event]) -> None:
        """Events of the last turn, in order; called on the owner thread."""
        ...

    def snapshot(self, snapshot: Snapshot) -> None:
        """Take a new snapshot, about once a second; called on the owner thread."""
        ...


class WorkerMonitor(Observer, Protocol):
    """An observer inside a worker process that makes reports for the supervisor."""

    def report(self) -> bytes:
        """Everything that the run's monitor needs to know of this worker, serialised."""
        ...


@runtime_checkable
class ProcessMonitor(Protocol):
    """What a worker's monitor may be as well: it hears from the processes of handlers.

    The methods are called on any thread, and must be quick. Of one process they come in order.
    """

    @property
    def process_report(self) -> Callable[[], str]:
        """A function of a module, which each process imports and calls about once a second.

        It runs on a thread of its own. What it returns is sent where it has changed.
        """
        ...

    def process_reported(self, pid: int, report: str) -> None:
        """Take the newest report of a handler's process."""
        ...

    def process_ended(self, pid: int) -> None:
        """A handler's process is gone; every report of it has come."""
        ...


class RunMonitor(Protocol):
    """The supervisor's side of monitoring: one HTTP address for all workers of a run."""

    def start(self, listen: str, certificate: Path | None = None, key: Path | None = None) -> str:
        """Serve on `host:port` (port 0: any free one) and return the address served.

        Args:
            certificate: for TLS, with those it is signed by; None for plain HTTP. Where there is
                none, a monitor is called with its address alone.
            key: of the certificate; None where that file has it, too.
        """
        ...

    def waits(self, worker: int | None, why: str) -> None:
        """Take why a worker, or the run itself (None), can't start yet; empty when it can."""
        ...

    def update(self, worker: int, report: bytes) -> None:
        """Take a worker's newest report."""
        ...

    def worker_gone(self, worker: int) -> None:
        """A worker process ended; a new one may take its number."""
        ...

    def settings(self, state: SettingsState) -> None:
        """Take the state of the run's settings: reloads, refusals, what needs a restart."""
        ...

    def progress(self, seen: Sequence[Progress] | None) -> None:
        """Take the group's progress as Kafka reports it; None if it is not known."""
        ...

    def control(self, path: str, answer: Control) -> None:
        """Answer POST and GET requests to this path with `answer`."""
        ...

    def stop(self) -> None:
        """Stop serving."""
        ...


@runtime_checkable
class PageMonitor(RunMonitor, Protocol):
    """A run's monitor whose pages somebody else may serve: the program that a worker runs in."""

    def page(self, request: PageRequest) -> PageAnswer:
        """Answer a request; any thread may ask."""
        ...


class MonitoringPlugin(Protocol):
    """A plugin of the entry point group `ackfloor.monitoring`."""

    def worker_monitor(self, worker: int, group: str) -> WorkerMonitor:
        """Make a worker's monitor; called once in each worker process."""
        ...

    def run_monitor(self, group: str, workers: int) -> RunMonitor:
        """Make the run's monitor; called once in the supervisor."""
        ...


class TransactionListener(Protocol):
    """Takes what a transactional sink reports. No method may raise."""

    def on_transaction(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        """A transaction has ended, and its outcome is certain."""
        ...


class TransactionalSink(Protocol):
    """Writes parked records and the commits that settle them, in transactions.

    Only the owner thread calls it, with one transaction at a time. Readers of committed records see
    all of a transaction, the commit included, or nothing.
    """

    def open(self, listener: TransactionListener) -> None:
        """Get ready to write, and abort what a killed predecessor left open.

        Raises:
            SourceFailed: the broker did not allow it within a bounded time.
            ConfigError: the broker refuses a setting.
        """
        ...

    def transact(self, transaction: Transaction, member: object) -> None:
        """Start a transaction, which another thread carries out.

        One report follows in a later `poll`, once it is certain that the transaction was committed
        or aborted, however long that takes.

        Args:
            member: `Source.membership` now.
        """
        ...

    def poll(self) -> None:
        """Report a transaction that has ended, without waiting."""
        ...

    def pending(self) -> int:
        """How many transactions have no report yet: one or none."""
        ...

    def close(self, timeout_s: float) -> None:
        """Deliver the outstanding report within `timeout_s` seconds, then stop.

        A transaction whose outcome is not known by then is not reported.
        """
        ...
