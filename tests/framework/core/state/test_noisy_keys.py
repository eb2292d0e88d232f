"""What a snapshot says of noisy and hanging keys, and of slots that are held for long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.queues.usual_time import NO_TIMEOUT_S
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.noisy_keys import MOST_SHOWN, long_slots, noisy_keys
from ackfloor.core.state.snapshot import LongSlots, NoisyKey, NoisyKeys
from tests.contracts.sink_contract import assignment_of
from tests.framework.core.queues.fair_worlds import BY_KEY, RULES, SLOTS, FairWorld
from tests.framework.core.worlds import START_MS, MemoryRecord, Now


def seen(world: FairWorld) -> NoisyKeys:
    """What a snapshot says of a world's keys."""
    return noisy_keys(world.handler, world.engine.state, world.running_now())


def long(world: FairWorld) -> LongSlots:
    """What a snapshot says of a world's slots."""
    return long_slots(world.handler, world.running_now(), world.now)


def hung(world: FairWorld, *keys: bytes) -> None:
    """One record of each of these keys hangs, others are handled in a hundredth of a second."""
    for key in keys:
        world.send(key)
    world.send(b"fine")
    world.fill()
    world.turn(0.01)
    world.end_of(b"fine")
    world.turn(1.0)


class TestNoisyKeys:
    """How many there are, and how many records wait, wherever they are."""

    def test_nothing_is_said_while_slots_are_free(self) -> None:
        """However much of one key is handled; nor where keys are not looked at."""
        world = FairWorld()
        world.send(b"flood", SLOTS - 1)
        world.fill()
        world.turn()
        assert seen(world) == NoisyKeys()
        off = FairWorld(replace(RULES, fair_key=None))
        off.send(b"flood", 5 * SLOTS)
        off.fill()
        off.turn()
        assert seen(off) == NoisyKeys()

    def test_each_record_of_a_noisy_key_is_counted_once(self) -> None:
        """Whether it waits apart, or the executor has it for slots that have nothing else."""
        world = FairWorld()
        world.send(b"flood", 10 * SLOTS)
        world.fill()
        world.turn()
        assert 0 < len(world.last) < 9 * SLOTS
        flood = NoisyKey("flood", hanging=False, running=SLOTS, behind=9 * SLOTS)
        assert seen(world) == NoisyKeys(1, 0, 9 * SLOTS, (flood,))
        world.end_of(b"flood", 3)
        world.fill()
        assert seen(world).behind == 9 * SLOTS - 3

    def test_what_waits_in_the_lane_of_a_hanging_record_waits_behind_it(self) -> None:
        """In key order nothing of it can wait anywhere else."""
        world = FairWorld(BY_KEY)
        hung(world, b"sick")
        world.send(b"sick", 12)
        world.fill()
        world.turn()
        sick = NoisyKey("sick", hanging=True, running=1, behind=12)
        assert seen(world) == NoisyKeys(0, 1, 12, (sick,), behind_hanging=12)
        while world.end_of(b"sick"):
            world.fill()
        world.turn()
        assert seen(world) == NoisyKeys()

    def test_every_record_of_a_lane_is_counted(self) -> None:
        """A lane waits as one item, apart or with the executor."""
        world = FairWorld(replace(BY_KEY, fair_key=lambda d: (d.key or b"").split(b"-")[0]))
        for n in range(SLOTS):
            world.send(b"acme-%d" % n)
        world.fill()
        world.turn()
        for n in range(3 * SLOTS):
            world.send(b"acme-late-%d" % n, 5)
        assert world.last
        assert len(world.fair)
        acme = NoisyKey("acme", hanging=False, running=SLOTS, behind=3 * SLOTS * 5)
        assert seen(world) == NoisyKeys(1, 0, 3 * SLOTS * 5, (acme,))

    def test_the_newest_few_are_named_and_all_are_counted(self) -> None:
        """A snapshot stays small."""
        world = FairWorld()
        for n in range(MOST_SHOWN + 2):
            hung(world, b"sick-%d" % n)
        keys = seen(world)
        assert (keys.noisy, keys.hanging) == (0, MOST_SHOWN + 2)
        assert [key.key for key in keys.newest] == [
            f"sick-{n}" for n in range(MOST_SHOWN + 1, 1, -1)
        ]

    @pytest.mark.parametrize(
        ("redaction", "shown"),
        [(Redaction(key="hash"), "ca978112ca1bbdca"), (Redaction(key="drop"), None)],
    )
    @pytest.mark.parametrize("grouped", [b"a", "a"])
    def test_keys_are_shown_as_far_as_they_may_be(
        self, redaction: Redaction, shown: str | None, grouped: bytes | str
    ) -> None:
        """What `[redaction]` takes away is not shown here either, whatever records are grouped
        by."""
        world = FairWorld(replace(RULES, fair_key=lambda d: grouped if d.key == b"a" else d.key))
        world.engine.state._redaction = redaction
        hung(world, b"a")
        assert [key.key for key in seen(world).newest] == [shown]


class TestLongSlots:
    """How many slots have deliveries that run far longer than usual, and whether these are all."""

    def test_what_runs_ten_times_as_long_as_usual(self) -> None:
        """And for a second at least: the others are not counted."""
        world = FairWorld()
        hung(world, *[b"sick-%d" % n for n in range(SLOTS - 1)])
        assert long(world) == LongSlots(SLOTS - 1, 1.0, full=False)
        world.send(b"late")
        world.fill()
        world.turn(0.9)
        assert long(world).count == SLOTS - 1
        world.turn(0.1)
        assert long(world) == LongSlots(SLOTS, 1.0, full=True)
        world.end_of(b"sick-3")
        assert not long(world).full

    def test_a_slow_handler_is_not_slow(self) -> None:
        """What is usual is learned from what is handled, also where keys are not looked at."""
        world = FairWorld(replace(RULES, fair_key=None))
        for _ in range(20):
            world.send(b"slow", 2)
            world.fill()
            world.turn(5.0)
            world.end_of(b"slow")
        world.send(b"slow", SLOTS)
        world.fill()
        world.turn(20.0)
        assert long(world).count == 0
        world.turn(39.0)
        assert long(world).full

    @pytest.mark.parametrize(
        ("timeout_s", "after_s"), [(60.0, 30.0), (1.0, 1.0), (None, NO_TIMEOUT_S / 2)]
    )
    def test_before_anything_was_handled_half_the_consume_timeout_is_long(
        self, timeout_s: float | None, after_s: float
    ) -> None:
        """Else the first records of a slow handler would seem to hang."""
        world = FairWorld(replace(RULES, consume_timeout_s=timeout_s))
        world.send(b"a", SLOTS)
        world.fill()
        world.now_s += after_s - 0.01
        assert long(world) == LongSlots(0, after_s, full=False)
        world.now_s += 0.01
        assert long(world).full

    def test_a_batch_has_one_slot(self) -> None:
        """However many records it has."""
        handler = HandlerState(HandlerRules("bill", batch=10, concurrency=2))
        running = []
        for calls in range(1, 3):
            batch = Batch()
            for n in range(10):
                record = MemoryRecord("orders", 0, n)
                delivery = TrackedDelivery(assignment_of(), record, n, 0, 0.0)
                delivery.started_s, delivery.batch = 1.0, batch
                running.append(delivery)
            found = long_slots(handler, running, Now(100.0, START_MS))
            assert (found.count, found.full) == (calls, calls == 2)
