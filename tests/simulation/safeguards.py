"""Safeguards: what keeps the promises, taken out one at a time, to see that the simulation notices.

Each is a function of the product, named by where it is, and what stands in its place while it is
out. One that can't be found any more is a failure: the list has to follow the code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ackfloor.core.messages.commands import Resume
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.records.record import Now
from ackfloor.core.state.deadlines import Deadlines
from ackfloor.runtime.loop.loop import TRANSACTION_S

Original = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Safeguard:
    """One function, and what is left when it does not do its work.

    Attributes:
        name: what it sees to.
        invariant: the number of the invariant of the contract.
        place: "module:Class.function" or "module:function".
        without: given the function, what stands in its place.
    """

    name: str
    invariant: int
    place: str
    without: Callable[[Original], Original]

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """Without it.

        Raises:
            AttributeError: it is not where it was.
        """
        module, _, path = self.place.partition(":")
        owner: Any = importlib.import_module(f"ackfloor.{module}")
        *outer, name = path.split(".")
        for each in outer:
            owner = getattr(owner, each)
        original = owner.__dict__[name]
        function = original.__func__ if isinstance(original, staticmethod) else original
        replacement: Any = self.without(function)
        if isinstance(original, staticmethod):
            replacement = staticmethod(replacement)
        setattr(owner, name, replacement)
        try:
            yield
        finally:
            setattr(owner, name, original)


def _nothing(_: Original) -> Original:
    return lambda *_, **__: None


def _always(value: object) -> Callable[[Original], Original]:
    return lambda _: lambda *_, **__: value


def _floor_is_position(_: Original) -> Original:
    return lambda self: self.position


def _refused_is_stored(original: Original) -> Original:
    return lambda self, assignments, position, error: original(self, assignments, position, None)


def _late_counts(original: Original) -> Original:
    def answered(self: Any, deliveries: Any, now: Now) -> None:
        taken = list(deliveries)
        for delivery in taken:
            delivery.closed = False
        original(self, taken, now)

    return answered


def _failed_is_published(_: Original) -> Original:
    return lambda self, parcel, error, *, too_large, now: self.published(parcel, now)


def _settles_at_once(original: Original) -> Original:
    def publish(self: Any, parcel: Any, now: Now) -> None:
        original(self, parcel, now)
        self.published(parcel, now)
        parcel.delivery.assignment.parking += 1

    return publish


def _each_alone(_: Original) -> Original:
    def admit_all(self: Any, batch: Any, by_key: bool) -> list[Any]:
        own = [self.admit((d.topic, d.partition, ("own", d.offset)), d) for d in batch]
        return [lane for lane in own if lane is not None]

    return admit_all


def _never_due(_: Original) -> Original:
    return lambda self, running, shortest_timeout_s, now_s: []


def _not_planned_anew(original: Original) -> Original:
    def overdue(self: Deadlines, running: Any, shortest_timeout_s: float, now_s: float) -> Any:
        found = original(self, running, shortest_timeout_s, now_s)
        # As if nothing but the shortest timeout decided when to look.
        self.next_scan_s = now_s + 2 * (shortest_timeout_s or 1e9)
        return found

    return overdue


def _never_resumed(original: Original) -> Original:
    def balance(self: Any, assignments: Any, commands: list[Any]) -> None:
        mine: list[Any] = []
        original(self, assignments, mine)
        commands += [command for command in mine if not isinstance(command, Resume)]

    return balance


def _no_drain(_: Original) -> Original:
    def on_revoked(self: Any, partitions: Any) -> None:
        self.engine.stop(partitions)
        self.engine.drop(partitions, lost=False)
        self.executors.cancel_closed()

    return on_revoked


def _committed_before_the_drain(_: Original) -> Original:
    def on_revoked(self: Any, partitions: Any) -> None:
        # What ends in the drain, and what is written then, is left out of the last commit.
        final = self.engine.final_positions(partitions)
        self.engine.stop(partitions)
        self._await_quiet(partitions, self._drain_s)
        until_s = self._clock.monotonic() + TRANSACTION_S
        self._await(lambda: not self._in_transaction(partitions), until_s)
        if final:
            self._source.commit(final, wait=True)
        self.engine.drop(partitions, lost=False)
        self.executors.cancel_closed()

    return on_revoked


def _floor_alone(original: Original) -> Original:
    def final(self: Any, assignments: Any) -> Any:
        return tuple(p._replace(metadata="") for p in original(self, assignments))

    return final


def _from_the_read(_: Original) -> Any:
    def deadline_s(self: Any) -> float | None:
        timeout_s = self.assignment.handler.rules.consume_timeout_s
        if timeout_s is None or not self.started_s:
            return None
        return max(float(self.received_s + timeout_s), self.extended_until_s)

    return property(deadline_s)


def _without_its_key(original: Original) -> Original:
    def envelope(self: Any, delivery: Any, verdict: Any, now: Now) -> Any:
        return original(self, delivery, verdict, now)._replace(idempotency_key=None)

    return envelope


def _lost_is_revoked(_: Original) -> Original:
    def on_lost(self: Any, partitions: Any) -> None:
        self.engine.stop(partitions)
        final = self.engine.final_positions(partitions)
        self.engine.drop(partitions, lost=True)
        if final:
            self._source.commit(final, wait=True)

    return on_lost


def _keeps_outputs(original: Original) -> Original:
    def again(self: Any, envelope: Any) -> Any:
        delivery = original(self, envelope)
        if self.outputs is not None:
            delivery._outputs = self._outputs
        return delivery

    return again


def _settled_before_its_outputs(original: Original) -> Original:
    def take(self: Any, delivery: Any, now: Now) -> Any:
        write = original(self, delivery, now)
        self._state.settle(delivery)
        return write

    return take


def _first_by_itself(original: Original) -> Original:
    return lambda write: (write,) if isinstance(write, OutputWrite) else original(write)


def _outputs_not_kept(original: Original) -> Original:
    def failed(self: Any, write: Any, error: str, *, too_large: bool, now: Now, **why: Any) -> None:
        original(self, write, error, too_large=too_large, now=now, **why)
        if isinstance(write, OutputWrite):
            self._forget_write(write)

    return failed


def _open_stays(original: Original) -> Original:
    def close(self: Any, assignment: Any) -> None:
        held, size = len(assignment.tracker.open), assignment.open_bytes
        original(self, assignment)
        self._state.flow.add(held, size, 0, tier=False)

    return close


def _left_open(original: Original) -> Original:
    def close(self: Any, assignment: Any) -> None:
        original(self, assignment)
        for delivery in assignment.tracker.open.values():
            delivery.closed = False

    return close


def _early(original: Original) -> Original:
    return lambda delivery, envelope, now: original(delivery, envelope, now) - 0.3


def _not_held(_: Original) -> Original:
    def dead_letter(self: Any, head: Any, _order: Any, now: Now) -> None:
        self._state.go_on(head)
        self._outbox.bury(head, now)

    return dead_letter


def _settled_by_word(original: Original) -> Original:
    def dead_letter(self: Any, head: Any, order: Any, now: Now) -> None:
        original(self, head, order, now)
        self._state.settle(head)

    return dead_letter


def _handled_again(original: Original) -> Original:
    return lambda self, start: None


def _double_answers(_: Original) -> Original:
    return lambda self: True


def _other_value(original: Original) -> Original:
    def park(self: Any, delivery: Any, verdict: Any, now: Now) -> Any:
        made = original(self, delivery, verdict, now)
        delivery.record._value = (delivery.record._value or b"") + b" "
        return made

    return park


def _all_may_start(_: Original) -> Original:
    return lambda self, assignment, batch, now: batch


def _elsewhere(original: Original) -> Original:
    def address_tier(self: Any, write: Any, delay_s: float, now: Now) -> None:
        original(self, write, delay_s, now)
        if write.delivery.assignment.handler.rules.quarantines:
            write.partition = self.pick(self.partitions[write.topic])

    return address_tier


def _settled_with_its_twin(original: Original) -> Original:
    def add(self: Any, delivery: Any, now: Now) -> None:
        original(self, delivery, now)
        quarantine = delivery.assignment.handler.lanes.quarantined.get(delivery.lane_key(True))
        if quarantine is not None and quarantine.current is not delivery:
            self._state.settle(delivery)

    return add


def _without_end(original: Original) -> Original:
    def delay_s(self: Any, attempt: int) -> float:
        found: float | None = original(self, attempt)
        return 1.0 if found is None else found

    return delay_s


def _lets_exits_out(original: Original) -> Original:
    def outcome_of(self: Any, exc: BaseException) -> Any:
        if not isinstance(exc, Exception):
            raise exc
        return original(self, exc)

    return outcome_of


#: The list. At least one for each invariant of the contract.
def _position_of_the_consumer(original: Original) -> Original:
    def passed(self: Any, positions: Any) -> None:
        rewound = [a for a in self.assignments.values() if a.rewound]
        for assignment in rewound:
            assignment.rewound = False
        original(self, positions)
        for assignment in rewound:
            assignment.rewound = True

    return passed


def _forgets_settled(original: Original) -> Original:
    def rewind(self: Any, position: int) -> Any:
        taken = original(self, position)
        self.restored.clear()
        return taken

    return rewind


def _drops_any(original: Original) -> Original:
    def drop_last(self: Any, delivery: Any) -> bool:
        return original(self, delivery) or not delivery.started_s

    return drop_last


SAFEGUARDS: tuple[Safeguard, ...] = (
    Safeguard(
        "the floor is the lowest open offset",
        1,
        "core.acks.tracker:AckTracker.floor",
        _floor_is_position,
    ),
    Safeguard(
        "a refused commit is not taken for stored",
        5,
        "core.state.commit_schedule:CommitSchedule.answered",
        _refused_is_stored,
    ),
    Safeguard(
        "a park settles only when it is confirmed",
        2,
        "core.outbox.outbox:Outbox.failed",
        _failed_is_published,
    ),
    Safeguard(
        "a park does not settle when it is sent",
        2,
        "core.outbox.outbox:Outbox._publish",
        _settles_at_once,
    ),
    Safeguard(
        "a record is parked byte for byte", 2, "core.parking.parking:Parking.park", _other_value
    ),
    Safeguard(
        "a partition's floor is committed",
        3,
        "core.state.commit_schedule:CommitSchedule.tick",
        _nothing,
    ),
    Safeguard(
        "a late answer changes nothing",
        4,
        "core.engine.completions:Completions.answered",
        _late_counts,
    ),
    Safeguard(
        "an answer by hand counts once",
        4,
        "core.records.tracked_delivery:TrackedDelivery.claim",
        _double_answers,
    ),
    Safeguard(
        "what the commit has settled is not handled again",
        5,
        "core.engine.intake:Intake._restored",
        _handled_again,
    ),
    Safeguard(
        "a partition that leaves is drained and committed",
        5,
        "runtime.loop.loop:Loop.on_revoked",
        _no_drain,
    ),
    Safeguard(
        "the last commit of a partition is made after its drain",
        5,
        "runtime.loop.loop:Loop.on_revoked",
        _committed_before_the_drain,
    ),
    Safeguard(
        "the last commit has what is settled above the floor",
        5,
        "core.state.commit_schedule:CommitSchedule.final",
        _floor_alone,
    ),
    Safeguard(
        "of a lost partition nothing is committed",
        1,
        "runtime.loop.loop:Loop.on_lost",
        _lost_is_revoked,
    ),
    Safeguard(
        "offsets that never arrive are passed", 6, "core.acks.tracker:AckTracker.passed", _nothing
    ),
    Safeguard(
        "what is paused is resumed",
        7,
        "core.queues.flow_limits:FlowControl.balance",
        _never_resumed,
    ),
    Safeguard("what leaves is no longer open", 7, "core.engine.intake:Intake._close", _open_stays),
    Safeguard("a lane starts one at a time", 8, "core.queues.lanes:Lanes.admit_all", _each_alone),
    Safeguard(
        "a lane waits for its failed head", 8, "core.state.worker_state:WorkerState.block", _nothing
    ),
    Safeguard(
        "what outlives its deadline is ended",
        9,
        "core.state.deadlines:Deadlines.overdue",
        _never_due,
    ),
    Safeguard(
        "the next deadline is looked for in time",
        9,
        "core.state.deadlines:Deadlines.overdue",
        _not_planned_anew,
    ),
    Safeguard(
        "a deadline runs from the start of the handler",
        9,
        "core.records.tracked_delivery:TrackedDelivery.deadline_s",
        _from_the_read,
    ),
    Safeguard(
        "a changed timeout counts for what runs",
        9,
        "core.state.deadlines:Deadlines.replan",
        _nothing,
    ),
    Safeguard("a refused park is tried again", 10, "core.outbox.outbox:Outbox.tick", _nothing),
    Safeguard(
        "a retry is released when it is due",
        10,
        "core.scheduling.redeliveries:Redeliveries.release",
        _nothing,
    ),
    Safeguard("a retry is not early", 10, "core.engine.intake:due_s", _early),
    Safeguard(
        "a lane goes on with the retry of its head",
        10,
        "core.state.worker_state:WorkerState.lane_of_due",
        _nothing,
    ),
    Safeguard(
        "a head that an operator dead-letters holds its lane",
        8,
        "core.scheduling.lane_orders:LaneOrders._dead_letter",
        _not_held,
    ),
    Safeguard(
        "a head that an operator dead-letters stays open until it is written",
        2,
        "core.scheduling.lane_orders:LaneOrders._dead_letter",
        _settled_by_word,
    ),
    Safeguard(
        "a takeover knows what is parked",
        8,
        "core.scheduling.quarantine_takeover:Takeovers._begin",
        _nothing,
    ),
    Safeguard(
        "what follows of a quarantined key waits",
        8,
        "core.scheduling.quarantined_keys:Quarantines.arrived",
        _all_may_start,
    ),
    Safeguard(
        "only the head of a quarantined key has its turn",
        8,
        "core.scheduling.quarantined_keys:Quarantines._may_begin",
        _always(value=True),
    ),
    Safeguard(
        "a lane's records go behind its failed one",
        8,
        "core.scheduling.quarantined_keys:Quarantines._take_lane",
        _nothing,
    ),
    Safeguard(
        "what retention may have taken keeps its place until its log was read",
        8,
        "core.state.quarantine_removals:_is_read",
        _always(value=True),
    ),
    Safeguard(
        "what waits behind is parked in its own partition",
        8,
        "core.parking.parking:Parking._address_tier",
        _elsewhere,
    ),
    Safeguard(
        "of several copies the one that ends is told from the others",
        2,
        "core.scheduling.quarantined_keys:is_same",
        _always(value=True),
    ),
    Safeguard(
        "what waits behind a head stays open",
        2,
        "core.scheduling.quarantined_keys:Quarantines._add",
        _settled_with_its_twin,
    ),
    Safeguard(
        "a condemned record is dead-lettered",
        10,
        "core.scheduling.quarantined_keys:Quarantines._bury_behind",
        _nothing,
    ),
    Safeguard(
        "what keeps others from being read is written anew",
        7,
        "core.scheduling.quarantine_renewal:Renewals._make_room",
        _always(value=0),
    ),
    Safeguard(
        "a key is free when nothing of it is left",
        10,
        "core.scheduling.quarantined_keys:Quarantines._resolve",
        _nothing,
    ),
    Safeguard("a handler's pause ends", 12, "core.scheduling.pauses:Pauses.tick", _nothing),
    Safeguard(
        "every exception is its record's outcome",
        11,
        "runtime.calls.invoke:Invocation.outcome_of",
        _lets_exits_out,
    ),
    Safeguard(
        "the suspects of a crash are known",
        11,
        "core.scheduling.crash_suspects:Suspects.learn",
        _nothing,
    ),
    Safeguard(
        "an answer for a partition that has left is stale",
        4,
        "core.engine.intake:Intake._close",
        _left_open,
    ),
    Safeguard(
        "an abandoned handler gives its slot back",
        12,
        "runtime.loop.executors:Executors.cancel",
        _nothing,
    ),
    Safeguard(
        "a parcel waits for a plain commit",
        3,
        "core.outbox.transactional_outbox:Transactions._may_go",
        _always(value=True),
    ),
    Safeguard(
        "a partition begins after the end of a transaction that carries it",
        3,
        "core.engine.engine:Engine.is_carried",
        _always(value=False),
    ),
    Safeguard(
        "an abort is not the fault of its bystanders",
        2,
        "core.outbox.transactional_outbox:Transactions.again",
        _nothing,
    ),
    Safeguard(
        "what a breaker withholds is delivered again",
        12,
        "core.scheduling.withheld:Withheld.withhold",
        _nothing,
    ),
    Safeguard(
        "an open breaker tries records",
        12,
        "core.scheduling.breaker_control:Breakers.trials",
        _nothing,
    ),
    Safeguard(
        "the budget of retries ends",
        10,
        "core.records.retry_policy:RetryPolicy.delay_s",
        _without_end,
    ),
    Safeguard(
        "a rewound partition does not follow its consumer's position",
        1,
        "core.engine.engine:Engine.passed",
        _position_of_the_consumer,
    ),
    Safeguard(
        "what was settled stays settled where a partition is rewound",
        4,
        "core.acks.tracker:AckTracker.rewind",
        _forgets_settled,
    ),
    Safeguard(
        "a park has the record's idempotency key",
        13,
        "core.parking.parking:Parking.envelope",
        _without_its_key,
    ),
    Safeguard(
        "only what waits behind a failed record is dropped from memory",
        4,
        "core.queues.lanes:Lanes.drop_last",
        _drops_any,
    ),
    Safeguard(
        "a lane's outputs keep its order",
        14,
        "core.outbox.transactional_outbox:lane_of",
        _always(value=None),
    ),
    Safeguard(
        "the outputs of an attempt that failed are dropped",
        14,
        "core.records.tracked_delivery:TrackedDelivery.again",
        _keeps_outputs,
    ),
    Safeguard(
        "a record with outputs is settled with them",
        14,
        "core.outbox.held_outputs:HeldOutputs.take",
        _settled_before_its_outputs,
    ),
    Safeguard(
        "all outputs of a record go together",
        14,
        "core.outbox.transactional_outbox:together",
        _first_by_itself,
    ),
    Safeguard(
        "refused outputs are written again",
        10,
        "core.outbox.outbox:Outbox.failed",
        _outputs_not_kept,
    ),
)
