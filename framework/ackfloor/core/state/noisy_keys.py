"""Noisy and hanging keys as people see them, and slots whose deliveries run far longer than usual.

Theory. Both are looked at when a snapshot is made, and nothing is kept for them. What waits of a
key is in three places: in its queue apart (`fair_order`), given to the executor for slots that have
nothing else, and, under the key's order, in the lane of what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ackfloor.core.queues.fair_order import FairOrder, Key, Waiting
from ackfloor.core.queues.lanes import Lane, Work
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.snapshot import LongSlots, NoisyKey, NoisyKeys
from ackfloor.core.state.worker_state import WorkerState

#: How many of a handler's noisy and hanging keys a snapshot names.
MOST_SHOWN = 5


def noisy_keys(
    handler: HandlerState, state: WorkerState, running: Sequence[TrackedDelivery]
) -> NoisyKeys:
    """A handler's noisy and hanging keys, named those that were found last.

    Args:
        running: its deliveries that have a slot.
    """
    fair = handler.queue.fair
    if fair is None or not fair.waiting:
        return NoisyKeys()
    busy, behind = _running_of(fair, handler, running)
    waits = {
        key: _waits(found, handler) + behind.get(key, 0) for key, found in fair.waiting.items()
    }
    hanging = {key for key, found in fair.waiting.items() if found.hanging}
    newest = tuple(
        NoisyKey(
            state.shown_key(
                key.encode("utf-8", "backslashreplace") if isinstance(key, str) else key
            ),
            hanging=found.hanging,
            running=busy.get(key, 0),
            behind=waits[key],
        )
        for key, found in islice(reversed(fair.waiting.items()), MOST_SHOWN)
    )
    return NoisyKeys(
        noisy=len(fair.waiting) - len(hanging),
        hanging=len(hanging),
        behind=sum(waits.values()),
        newest=newest,
        behind_hanging=sum(waits[key] for key in hanging),
    )


def _running_of(
    fair: FairOrder, handler: HandlerState, running: Sequence[TrackedDelivery]
) -> tuple[dict[Key, int], dict[Key, int]]:
    """How many deliveries of each key that waits for others run, and how many records wait for
    these in their lanes."""
    busy: dict[Key, int] = {}
    behind: dict[Key, int] = {}
    for delivery in running:
        key = fair.key_of(delivery)
        if key is not None and key in fair.waiting:
            busy[key] = busy.get(key, 0) + 1
            behind[key] = behind.get(key, 0) + handler.lanes.behind(delivery)
    return busy, behind


def _waits(found: Waiting, handler: HandlerState) -> int:
    """How many records of a key wait for a slot."""
    apart = sum(len(item) if isinstance(item, Lane) else 1 for item in found.items)
    given = (d for d in found.given if not (d.started_s or d.closed))
    return apart + sum(_with_those_behind(delivery, handler) for delivery in given)


def _with_those_behind(delivery: TrackedDelivery, handler: HandlerState) -> int:
    """A delivery that the executor has not started, and those that wait for it in its lane."""
    lane = delivery.lane
    # No slot has taken it from its work: it is counted there.
    in_work = isinstance(lane, Lane) and isinstance(lane.out, Work)
    return handler.lanes.behind(delivery) + (not in_work)


def long_slots(handler: HandlerState, running: Sequence[TrackedDelivery], now: Now) -> LongSlots:
    """How many slots of a handler have deliveries that run far longer than usual.

    Args:
        running: its deliveries that have a slot and were started.
    """
    rules = handler.rules
    after_s = handler.usual.long_s(rules.consume_timeout_s)
    found = [d for d in running if now.mono_s - d.started_s >= after_s]
    # A batch has one slot.
    count = len(found) if rules.batch is None else len({d.batch for d in found})
    return LongSlots(count, after_s, full=count >= rules.concurrency)
