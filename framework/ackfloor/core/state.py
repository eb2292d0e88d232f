"""WorkerState: everything the engine's parts share, and what they have to say.

The engine is told in three files, each one part of a record's life: `intake` (read, registered,
dispatched), `endings` (handled, failed, timed out) and `parcels` (written elsewhere). They work
on this one object, on one thread, and add their commands and events to its two lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ackfloor.core.assignment import AckStats, Assignment, HandlerRules, HandlerState
from ackfloor.core.commits import CommitPlan
from ackfloor.core.delivery import Delivery
from ackfloor.core.faults import Faults
from ackfloor.core.flow import FlowControl, FlowLimits
from ackfloor.core.lanes import Run
from ackfloor.core.messages import Command, Dispatch, Event
from ackfloor.core.parking import Parking


@dataclass(frozen=True, slots=True)
class Route:
    """What a subscribed topic is: whose, and which retry tier (its delay) or None."""

    handler: str
    source_topic: str
    tier_s: float | None = None


class WorkerState:
    """The state of one worker; see `Engine` for the arguments."""

    __slots__ = (
        "assignments",
        "clock",
        "commands",
        "commits",
        "epoch",
        "events",
        "faults",
        "flow",
        "handlers",
        "inbox",
        "parking",
        "routes",
        "stats",
    )

    def __init__(
        self,
        handlers: Iterable[HandlerRules],
        routes: Mapping[str, Route],
        parking: Parking,
        *,
        limits: FlowLimits,
        inbox: deque[Delivery],
        clock: Callable[[], float],
        commit_interval_s: float,
        commit_count: int,
    ) -> None:
        self.handlers = {rules.name: HandlerState(rules) for rules in handlers}
        self.routes = routes
        self.parking = parking
        self.inbox = inbox
        self.clock = clock
        self.assignments: dict[tuple[str, int], Assignment] = {}
        #: The epoch of the newest assignment.
        self.epoch = 0
        self.flow = FlowControl(limits)
        self.commits = CommitPlan(commit_interval_s, commit_count)
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

    def dispatch(
        self,
        handler: HandlerState,
        batch: Sequence[Delivery],
        *,
        ahead: bool = False,
        alone: bool = False,
    ) -> None:
        """Put deliveries on their handler's ready queue, or on their lanes; see `Dispatch`."""
        rules = handler.rules
        if rules.ordering == "unordered":
            self.commands.append(Dispatch(rules.name, batch, ahead, alone))
            return
        runs: list[Run] = []
        by_key = rules.ordering == "key"
        for delivery in batch:
            run = handler.lanes.admit(delivery.lane(by_key), delivery)
            if run is not None:
                runs.append(run)
        if runs:
            self.commands.append(Dispatch(rules.name, runs, ahead, alone))

    def settle(self, delivery: Delivery) -> None:
        """Settle one record that did not come the ordinary way."""
        if delivery.assignment.tracker.settle(delivery.record_offset) is not None:
            self.flow.sub(1, delivery.size)
            delivery.assignment.open_bytes -= delivery.size
            self.commits.settled(1)

    def block(self, delivery: Delivery, *, again: bool) -> None:
        """Let a delivery's lane wait for it; see `Lanes.block`."""
        handler = delivery.assignment.handler
        if handler.rules.ordering != "unordered":
            lane = delivery.lane(handler.rules.ordering == "key")
            handler.lanes.block(lane, delivery, again=again)

    def go_on(self, delivery: Delivery, *, settled: bool) -> None:
        """Let the lane that waits for a delivery go on; one that is due goes ahead of others."""
        handler = delivery.assignment.handler
        lane = delivery.lane(handler.rules.ordering == "key")
        run = handler.lanes.go_on(lane, delivery, settled=settled)
        if run is not None:
            self.commands.append(Dispatch(handler.rules.name, [run], ahead=not settled))

    def free(self, delivery: Delivery) -> None:
        """A record that was retried in place is settled: its lane holds nothing any more."""
        handler = delivery.assignment.handler
        handler.lanes.free(delivery.lane(handler.rules.ordering == "key"), delivery)

    def balance(self) -> None:
        """Pause and resume fetching by the present levels."""
        self.flow.balance(self.assignments.values(), self.commands)
