"""Ports: what the runtime needs from the outside world, and what it tells it.

Each port has two implementations that pass the same contract suite (tests/contracts): the real
one (`kafka/`, `runtime/`) and the in-memory one (`testing/`). Everything named "listener" is
implemented by the runtime's loop and called *on the owner thread, from inside* the call that
caused it: `Source.poll` calls the source listener, `Sink.poll` the sink listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ackfloor.control import Control, SettingsState
from ackfloor.core.acks.progress import Progress
from ackfloor.core.messages.events import Event
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Outcome, Transaction
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
    """Both clocks. The manual one of the test kit stands still until it is advanced."""

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
    """What a source reports. No method may raise."""

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        """Partitions were assigned; reading starts at the given positions."""
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are about to leave. May take up to the drain bound, and commits.

        It runs on the owner thread inside `Source.poll`, so it may call `Source.commit` with
        `wait=True` and `Sink.poll`, and must not wait for anything that waits for the source.
        """
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were taken without warning: nothing may be committed for them."""
        ...

    def on_gone(self, partition: TopicPartition, position: int) -> None:
        """Retention has removed what was to be read next; reading goes on at `position`."""
        ...

    def on_deleted(self, ends: Sequence[tuple[TopicPartition, int]]) -> None:
        """The topics of these partitions were deleted; each ended there as far as is known.

        They are no longer read or committed. Nobody else has what was read of them.
        """
        ...

    def on_records(self, records: Sequence[Record]) -> None:
        """Records were read, in offset order within each partition."""
        ...

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        """A commit came back: for each position None, or the reason it was refused."""
        ...


class Source(Protocol):
    """Reads records of a consumer group. Only the owner thread calls it."""

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics (all of which exist)."""
        ...

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:
        """Report what there is: rebalances, records, answers to commits.

        Waits at most `timeout_s` seconds for the first record and not at all for more. Each
        batch is reported before anything else can change the assignment. Returns the number of
        records reported. Transient errors of the broker are logged and not raised.

        Without `ahead` the handlers have enough to do: of the source's records most may stay where
        they are, and the whole `timeout_s` is waited. Everything else is reported as ever.

        Raises:
            SourceFailed: the consumer can't go on (fatal error, or a listener raised).
        """
        ...

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit positions (with their metadata) in one request.

        With `wait=False` the answer comes through `on_committed` in a later `poll`; with
        `wait=True` it has been reported when the call returns, within a bounded time.
        """
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching partitions; those not assigned are ignored."""
        ...

    def resume(self, positions: Sequence[tuple[TopicPartition, int]]) -> None:
        """Fetch partitions again, each from the given position; those not assigned ignored."""
        ...

    def membership(self) -> object:
        """This member of the group as it is now, for a transaction that commits in its name."""
        ...

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The consumer's own next positions, past trailing records that never arrive."""
        ...

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """The last known log end of each assigned partition, without asking the broker."""
        ...

    def poll_limit_s(self) -> float | None:
        """How long the group waits for a poll before it gives the partitions to others.

        In seconds; None where nobody waits.
        """
        ...

    def troubles(self) -> Mapping[str, Trouble]:
        """What is in the way at the brokers: a topic, the group or "brokers" -> what it is.

        By what is known already; nothing is asked. It ends when the brokers say so.
        """
        ...

    def look_closer(self) -> None:
        """Something can't be written, or seems so: ask soon for `troubles`, within a second."""
        ...

    def close(self) -> None:
        """Leave the group. The listener's `on_revoked` has run when it returns."""
        ...


class SinkListener(Protocol):
    """What a sink reports about parcels. No method may raise."""

    def on_published(self, write: PendingWrite) -> None:
        """The broker confirmed the record with acks=all."""
        ...

    def on_publish_failed(self, write: PendingWrite, error: str, *, too_large: bool) -> None:
        """The record was not written, or it is not known whether it was."""
        ...


class Sink(Protocol):
    """Writes parcels (parked records) durably. Only the owner thread calls it."""

    def open(self, listener: SinkListener) -> None:
        """Make ready to write."""
        ...

    def publish(self, write: PendingWrite) -> None:
        """Start writing a parcel: topic, partition, headers from it; key and value from its
        delivery's record. Exactly one report follows, in a later `poll` or in this call."""
        ...

    def poll(self) -> None:
        """Report what has been confirmed or has failed, without waiting."""
        ...

    def pending(self) -> int:
        """Parcels whose report is outstanding."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for outstanding reports (delivering them), then stop."""
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
    ) -> None:
        """Start writing one record; `on_done` is called once, from any thread, with None when
        the broker has confirmed it and with the error otherwise."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for outstanding confirmations, then stop."""
        ...


#: Where a handler is: "file:line function" of each frame, the innermost last.
Stack = tuple[str, ...]


class Executor(Protocol):
    """Runs the deliveries of one handler, at most `concurrency` at once.

    It is given a little more than it runs, and starts that in order as slots become free. It stamps
    `started_s` before and `outcome` and `finished_s` after, and posts each delivery to the inbox it
    was made with; and each work and each batch when it has ended, after its answers. Except for the
    start-up and the end, every method may be called from the owner thread at any time and never
    blocks.
    """

    def start(self) -> None:
        """Start the workers."""
        ...

    def submit(self, units: Sequence[Unit]) -> None:
        """Start these, in this order, behind what was given before."""
        ...

    def take_back(self) -> None:
        """Give back what has not started, soon: it is posted as `returned`, in its order. Of a
        work that has begun, the record at hand is the last that is started."""
        ...

    def queued(self) -> int:
        """Units that no slot has taken yet."""
        ...

    def running(self) -> Iterable[TrackedDelivery]:
        """The deliveries that occupy a slot: started, about to start (`started_s` is 0), or ended
        by somebody else while their handlers go on."""
        ...

    def stack(self, delivery: TrackedDelivery) -> Stack:
        """Where the handler of a running delivery is now; empty where that can't be told."""
        ...

    def cancel(self, delivery: TrackedDelivery) -> None:
        """The delivery's time is up: cancel its handler if that is possible, and in any case
        give its slot to a fresh worker, after the cancel grace at the latest. Where handlers can
        be killed, its outcome is posted when the handler has been seen dead."""
        ...

    def abandoned(self) -> int:
        """Abandoned handlers that are still running."""
        ...

    def resize(self, concurrency: int) -> None:
        """Run at most so many deliveries at once from now on. More start at once; of too many,
        those that run may end, and start nothing else."""
        ...

    def stop(self, timeout_s: float) -> int:
        """Cancel what runs (it comes back as released), stop the workers, and return how many
        handlers are still running after `timeout_s` seconds."""
        ...


class Observer(Protocol):
    """Is told everything that happened. Must be quick and do no I/O; it can't hurt the loop:
    what it raises is logged once for its kind and counted."""

    def observe(self, events: Sequence[Event]) -> None:
        """Events of the last turn, in order; called on the owner thread."""
        ...

    def snapshot(self, snapshot: Snapshot) -> None:
        """A fresh snapshot, about once a second; called on the owner thread."""
        ...


class WorkerMonitor(Observer, Protocol):
    """An observer inside a worker process whose findings can be sent to the supervisor."""

    def report(self) -> bytes:
        """Everything the supervisor's side needs to answer for this worker, serialised."""
        ...


class RunMonitor(Protocol):
    """The supervisor's side of monitoring: one address for all workers of a run."""

    def start(self, listen: str) -> str:
        """Serve on `host:port` (port 0: any free one) and return the address served."""
        ...

    def waits(self, worker: int | None, why: str) -> None:
        """Why a worker, or the run itself (None), can't start yet; empty when it can."""
        ...

    def update(self, worker: int, report: bytes) -> None:
        """Take a worker's newest report."""
        ...

    def worker_gone(self, worker: int) -> None:
        """A worker process ended; a new one may take its number."""
        ...

    def settings(self, state: SettingsState) -> None:
        """How the run stands to its settings now."""
        ...

    def progress(self, seen: Sequence[Progress] | None) -> None:
        """How far the group has come as Kafka sees it; None where that is not known."""
        ...

    def control(self, path: str, answer: Control) -> None:
        """Answer what is posted to this path."""
        ...

    def stop(self) -> None:
        """Stop serving."""
        ...


class MonitoringPlugin(Protocol):
    """What the entry point group `ackfloor.monitoring` offers."""

    def worker_monitor(self, worker: int, group: str) -> WorkerMonitor:
        """Made once in each worker process."""
        ...

    def run_monitor(self, group: str, workers: int) -> RunMonitor:
        """Made once in the supervisor."""
        ...


class TransactionListener(Protocol):
    """What a transactional sink reports. No method may raise."""

    def on_transaction(self, transaction: Transaction, outcome: Outcome) -> None:
        """A transaction is over, and it is known how."""
        ...


class TransactionalSink(Protocol):
    """Writes parcels together with the commits that settle them. Only the owner thread calls it.

    One transaction at a time. Nothing of one is ever seen by a reader of committed records unless
    all of it is, the commit included.
    """

    def open(self, listener: TransactionListener) -> None:
        """Make ready to write, and end what a killed predecessor left open.

        Raises:
            SourceFailed: the broker did not let it within a bounded time.
        """
        ...

    def transact(self, transaction: Transaction, member: object) -> None:
        """Begin to write a transaction, which takes its time elsewhere.

        One report follows in a later `poll`. It is told as committed or as aborted only when that
        is certain, however long it takes to find out.

        Args:
            member: what `Source.membership` says now.
        """
        ...

    def poll(self) -> None:
        """Report the transaction that has ended, without waiting."""
        ...

    def pending(self) -> int:
        """Transactions whose report is outstanding: one or none."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for the outstanding report, delivering it, then stop.

        One whose end is not known by then is not reported.
        """
        ...
