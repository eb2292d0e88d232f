"""WorkerState: the state that the engine's parts share, and their pending commands and events.

The engine is split into three files, each one part of a record's life: `intake` (read, registered,
dispatched), `completions` (handled, failed, timed out) and `outbox` (written elsewhere). They work
on this one object, on one thread, and add their commands and events to its two lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ackfloor.core.messages.commands import Command, TakeBack
from ackfloor.core.messages.events import CopySettled, DeliveryFailed, Event, RecordsRewound
from ackfloor.core.parking.parking import Parking
from ackfloor.core.queues.flow_limits import FlowControl, FlowLimits
from ackfloor.core.queues.handler_queue import Item
from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Failure
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.trace_context import sampled_trace
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AckStats, Assignment, HandlerRules, HandlerState
from ackfloor.core.state.commit_schedule import CommitSchedule
from ackfloor.core.state.faults import Faults
from ackfloor.core.state.rewinds import rewind

#: A tier that holds its records for so many seconds may be read a moment later than the rest.
LOW_PRIORITY_S = 1.0
#: The part of a handler's rate that workers have by the retry partitions they own.
TIERS_PART = 0.01
#: Handlers may hold outputs of one part of this many of the worker's bytes, together.
OUTPUTS_PART = 4
#: Characters of an error that a snapshot shows.
SHOWN = 200


@dataclass(frozen=True, slots=True)
class Route:
    """A topic that is read.

    Attributes:
        handler: whose it is.
        source_topic: itself, or the one whose retry tier it is.
        tier_s: its delay where it is a retry tier.
        quarantines: whether its handler does: all its tiers belong to the worker that has the
            source's partition, however short they hold their records.
    """

    handler: str
    source_topic: str
    tier_s: float | None = None
    quarantines: bool = False

    @property
    def high_priority(self) -> bool:
        """Whether it is a tier that is subscribed and read together with the sources.

        It holds its records for less than `LOW_PRIORITY_S`, and keeps no order.
        """
        return self.tier_s is not None and self.tier_s < LOW_PRIORITY_S and not self.quarantines


class WorkerState:
    """The state of one worker; see `Engine` for the arguments."""

    __slots__ = (
        "_redaction",
        "assignments",
        "clock",
        "commands",
        "commits",
        "counts",
        "epoch",
        "events",
        "exclusive",
        "faults",
        "flow",
        "handlers",
        "inbox",
        "parking",
        "routes",
        "stats",
        "unbalanced",
        "waiting",
    )

    def __init__(
        self,
        handlers: Iterable[HandlerRules],
        routes: Mapping[str, Route],
        parking: Parking,
        *,
        limits: FlowLimits,
        inbox: deque[TrackedDelivery],
        clock: Callable[[], float],
        commit_interval_s: float,
        commit_count: int,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        #: Masks what exceptions and keys say, before any of it is shown.
        self._redaction = redaction
        self.handlers = {rules.name: HandlerState(rules) for rules in handlers}
        self.routes = routes
        self.parking = parking
        #: Topic -> how many partitions it has, as far as it was told while the worker runs.
        self.counts: dict[str, int] = {}
        self.inbox = inbox
        self.clock = clock
        #: A crash suspect runs alone: nothing else of the worker may start.
        self.exclusive = False
        #: Levels have fallen since the last look at them, and something is paused.
        self.unbalanced = False
        self.assignments: dict[tuple[str, int], Assignment] = {}
        #: Those in which something waits, and perhaps some in which nothing does any more.
        self.waiting: dict[Assignment, None] = {}
        #: The epoch of the newest assignment.
        self.epoch = 0
        self.flow = FlowControl(limits)
        self.share_outputs()
        self.commits = CommitSchedule(commit_interval_s, commit_count)
        self.faults = Faults()
        self.stats: dict[tuple[str, str], AckStats] = {}
        self.commands: list[Command] = []
        self.events: list[Event] = []

    def stats_of(self, topic: str, handler: str) -> AckStats:
        """Where deliveries of one source topic are counted."""
        stats = self.stats.get((topic, handler))
        if stats is None:
            stats = self.stats[topic, handler] = AckStats(topic, handler)
        return stats

    def shown(self, failure: Failure) -> str:
        """An error in a line: its type, and the first words of its message."""
        # Masked first: a line that was cut might not match any more.
        text = self._redaction.of_text(failure.message) or ""
        return f"{failure.error_type}: {(text.splitlines() or [''])[0][:SHOWN]}"

    def shown_key(self, key: bytes | None) -> str | None:
        """A record's key, as far as it may be shown."""
        shown = self._redaction.of_key(key)
        return None if shown is None else shown.decode("utf-8", "backslashreplace")[:SHOWN]

    def dispatch(
        self,
        handler: HandlerState,
        batch: Sequence[TrackedDelivery],
        *,
        ahead: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Put deliveries on their handler's queue, or on their lanes.

        Args:
            handler: whose they are.
            batch: deliveries that are due, in order.
            ahead: before all others. A redelivery has waited its time, and must not wait again
                behind a backlog of first deliveries.
            exclusive: it may start while nothing else of the worker may.
        """
        batch_buffer = None if ahead or exclusive else handler.batch_buffer
        items: Sequence[Item] = batch
        if handler.rules.ordering != "unordered":
            items = lanes = self._in_lanes(handler, batch, gathers=batch_buffer is not None)
            if ahead:
                _give_room_behind(handler, batch, lanes)
        elif batch_buffer is not None:
            items = batch_buffer.add(batch, handler.rules.batch or 1)
        if exclusive:
            handler.queue.exclusive.extend(items)
        else:
            handler.queue.put(items, ahead=ahead)

    @staticmethod
    def _in_lanes(
        handler: HandlerState, batch: Sequence[TrackedDelivery], *, gathers: bool
    ) -> list[Item]:
        """Put deliveries in their lanes; returns the lanes to queue."""
        by_key, batch_buffer = handler.rules.ordering == "key", handler.batch_buffer
        if batch_buffer is None:
            return handler.lanes.admit_all(batch, by_key)
        size = handler.rules.batch or 1
        lanes: list[Item] = []
        for delivery in batch:
            lane = handler.lanes.admit(delivery.lane_key(by_key), delivery)
            if lane is None:
                # Its lane may be one that waits for a batch.
                lanes += batch_buffer.grew(cast("Lane", delivery.lane), size)
            elif gathers:
                lanes += batch_buffer.add_lane(lane, size)
            else:
                lanes.append(lane)
        return lanes

    def hand_out(self, handler: HandlerState, lane: Item | None) -> None:
        """A lane is free, if any: queue it.

        Where its handler takes batches it may have to wait, for its head or for a batch.
        """
        if lane is None:
            return
        batch_buffer = handler.batch_buffer
        if batch_buffer is None or isinstance(lane, TrackedDelivery):
            handler.queue.put((lane,))
            return
        while lane:
            head = lane[0]
            if head.assignment.stopping:
                return
            due_s = handler.behind.pop(head, None)
            if due_s is not None:
                lane.popleft()
                self.block(head, again=True)
                self.wait(head, due_s)
                return
            if not head.closed:
                lanes = (
                    [lane]
                    if head.unbatched
                    else batch_buffer.add_lane(lane, handler.rules.batch or 1)
                )
                handler.queue.put(lanes)
                return
            lane.popleft()
            if not head.settled:
                # It is on its way to the dead letters.
                self.block(head, again=False)
                return
        handler.lanes.begins(lane)

    def settle(self, delivery: TrackedDelivery) -> None:
        """Settle one record, outside of `Completions`' batches."""
        self.settle_all(delivery.assignment, (delivery,))

    def settle_all(self, assignment: Assignment, deliveries: Iterable[TrackedDelivery]) -> None:
        """Settle those of a partition's records that are open."""
        settle, trials = assignment.tracker.settle, assignment.withheld.trials
        settled = [d for d in deliveries if settle(d.record_offset) is not None]
        size = sum([d.size for d in settled])
        self.flow.sub(len(settled), size)
        assignment.open_bytes -= size
        if trials:
            for delivery in settled:
                trials.pop(delivery.record_offset, None)
        self.commits.settled(len(settled))

    def settle_copy(self, delivery: TrackedDelivery) -> None:
        """Settle one of several copies of a record: another is open, or the record is resolved."""
        assignment = delivery.assignment
        assignment.end(delivery)
        self.settle(delivery)
        # Not left to the next read or answer: while everything is paused there may be none.
        self.unbalanced = self.flow.any_paused
        name = assignment.handler.rules.name
        self.events.append(CopySettled(assignment.source_topic, assignment.partition, name))

    def failed(self, delivery: TrackedDelivery, outcome: Failed | Rejected) -> None:
        """Report that a delivery has failed."""
        assignment = delivery.assignment
        self.events.append(
            DeliveryFailed(
                assignment.source_topic,
                assignment.partition,
                delivery.offset,
                assignment.handler.rules.name,
                delivery.attempt,
                outcome.reason,
                outcome.failure.error_type,
                outcome.failure.message,
                delivery.finished_s - delivery.started_s,
                assignment.topic,
                sampled_trace(delivery.headers),
            )
        )

    def wait(self, delivery: TrackedDelivery, due_s: float) -> None:
        """Let a delivery wait until it is due (monotonic seconds)."""
        delivery.assignment.waiting.put(due_s, delivery)
        self.waiting[delivery.assignment] = None

    def block(self, delivery: TrackedDelivery, *, again: bool) -> None:
        """Let a delivery's lane wait for it; see `Lanes.block`. What comes behind it is held."""
        handler = delivery.assignment.handler
        if handler.rules.ordering != "unordered":
            key = delivery.lane_key(handler.rules.ordering == "key")
            handler.lanes.block(key, delivery, again=again)
            self.flow.look_again()

    def go_on(self, delivery: TrackedDelivery) -> None:
        """A record is settled: if its lane waited for it, let the lane go on."""
        handler = delivery.assignment.handler
        if handler.rules.ordering == "unordered":
            return
        key = delivery.lane_key(handler.rules.ordering == "key")
        if handler.batch_buffer is not None and handler.rules.in_place:
            # Only there it has stayed in its lane.
            handler.lanes.settled(key, delivery)
        self.hand_out(handler, handler.lanes.go_on(key, delivery, settled=True))

    def lane_of_due(self, delivery: TrackedDelivery) -> Lane | None:
        """A delivery is due that its lane waited for; returns the lane to queue."""
        handler = delivery.assignment.handler
        key = delivery.lane_key(handler.rules.ordering == "key")
        return handler.lanes.go_on(key, delivery, settled=False)

    def free(self, delivery: TrackedDelivery) -> None:
        """A record that was retried in place is settled: nothing is held behind it any more."""
        handler = delivery.assignment.handler
        handler.lanes.free(delivery.lane_key(handler.rules.ordering == "key"), delivery)

    def take_back(self, handler: HandlerState) -> None:
        """Have a handler's executor give back what it has not started."""
        self.commands.append(TakeBack(handler.rules.name))

    def rest(self, handler: HandlerState) -> None:
        """Stop fetching a handler's topics, or go on, as it is now."""
        resting = handler.rests_in_pause or handler.circuit.full
        if handler.resting != resting:
            handler.resting = resting
            self.balance()

    def withheld(self, handler: HandlerState) -> int:
        """How many of a handler's records its breaker withholds."""
        return sum(len(a.withheld) for a in self.assignments.values() if a.handler is handler)

    def share_outputs(self) -> None:
        """Divide what held outputs may take evenly among the handlers that publish exactly once."""
        holders = [h for h in self.handlers.values() if h.rules.exactly_once]
        for handler in holders:
            most = self.flow.limits.max_open_bytes // (OUTPUTS_PART * len(holders))
            handler.outputs_limit = max(1, most)

    # Parts of the group.

    def counted(self, counts: Mapping[str, int]) -> None:
        """Topics have so many partitions."""
        more = {t: n for t, n in counts.items() if n > self.counts.get(t, 0)}
        if more:
            self.counts.update(more)
            self.forget_shares()

    def forget_shares(self) -> None:
        """Have the shares computed anew: the worker owns other partitions, or there are more."""
        for handler in self.handlers.values():
            handler.forget_shares()

    def share_of(self, handler: HandlerState) -> float:
        """The part of the group's partitions of a handler's topics that this worker owns."""
        if handler.share is None:
            owned, all_ = self._partitions_of(handler, tiers=None)
            handler.share = min(1.0, owned / all_) if owned and all_ else 1.0
        return handler.share

    def rate_of(self, handler: HandlerState) -> float:
        """The part of a handler's rate that is this worker's, in records a second; 0 without one.

        It is the part of the source partitions that it owns; `TIERS_PART` of the rate goes by the
        retry partitions: a worker may have some of these without any of their sources.
        """
        rate = handler.rate
        if rate is None:
            return 0.0
        if rate.share is None:
            owned, all_ = self._partitions_of(handler, tiers=False)
            owned_tiers, all_tiers = self._partitions_of(handler, tiers=True)
            for_tiers = TIERS_PART if all_tiers else 0.0
            sources = (1.0 - for_tiers) * (owned / all_ if all_ else 0.0)
            rate.share = min(1.0, sources + for_tiers * owned_tiers / max(1, all_tiers))
        return (handler.rules.rate_per_s or 0.0) * rate.share

    def _partitions_of(self, handler: HandlerState, *, tiers: bool | None) -> tuple[int, int]:
        """How many partitions of a handler's topics this worker owns, and how many there are.

        Args:
            handler: the handler.
            tiers: of its retry topics; of its source topics where False, of both where None.
        """
        owned = sum(
            a.handler is handler and tiers in {None, a.tier_s is not None}
            for a in self.assignments.values()
        )
        known, name = self.parking.partitions, handler.rules.name
        all_ = sum(
            max(self.counts.get(topic, 0), known.get(topic, 1))
            for topic, route in self.routes.items()
            if route.handler == name and tiers in {None, route.tier_s is not None}
        )
        return owned, all_

    def rebalance(self) -> None:
        """`balance`, if records were read or handled so that a gate may have changed."""
        if self.unbalanced or not self.flow.steady:
            self.balance()

    def balance(self) -> None:
        """Pause and resume fetching by the present levels."""
        self.unbalanced = False
        self.flow.balance(self.assignments.values(), self.commands)
        if self.flow.over:
            for assignment in self.assignments.values():
                if rewound := rewind(assignment):
                    self._rewound(assignment, rewound)

    def _rewound(self, assignment: Assignment, records: Sequence[TrackedDelivery]) -> None:
        size = sum(delivery.size for delivery in records)
        self.flow.sub(len(records), size)
        assignment.open_bytes -= size
        self.unbalanced = True
        self.events.append(
            RecordsRewound(
                assignment.source_topic,
                assignment.partition,
                assignment.handler.rules.name,
                len(records),
                size,
            )
        )


def _give_room_behind(
    handler: HandlerState, batch: Sequence[TrackedDelivery], free: Sequence[Item]
) -> None:
    """Of redeliveries that were put in lanes, those that are not first there take no slot.

    What is first may be withheld, and be waiting for that room itself.
    """
    first = {id(item[0] if isinstance(item, Lane) else item) for item in free}
    for delivery in batch:
        if delivery.retrying and id(delivery) not in first:
            handler.gives_room(delivery)
