"""FairOrder: who waits for whom where slots are scarce (F1 to F5)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ackfloor.core.queues.fair_order import FEWEST_LOOKS, LOOK_S, LOOKS, MOST_TIMED_OUT, Waiting
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.declare.fair_key import kafka_key
from tests.framework.core.queues.fair_worlds import BY_KEY, RULES, SLOTS, FairWorld, reload
from tests.framework.core.worlds import TIER

QUARTER = SLOTS // 4
NO = Failed(Failure("ValueError", "no"), Reason.ERROR)


def flooded() -> FairWorld:
    """A world whose slots are all taken by one key, of which much more waits."""
    world = FairWorld()
    world.send(b"flood", 10 * SLOTS)
    world.fill()
    world.turn()
    assert (world.runs(b"flood"), set(world.fair.waiting)) == (SLOTS, {b"flood"})
    return world


def look(world: FairWorld) -> None:
    """Time passes until what runs is looked at, and it is."""
    world.turn()
    world.feed()


class TestNoisy:
    """F2, F4: quiet keys go first while slots are scarce."""

    def test_nobody_waits_while_slots_are_free(self) -> None:
        """A key may have all the traffic: nothing is looked at for its key."""
        world = FairWorld()
        for _ in range(50):
            world.send(b"flood", SLOTS // 2)
            world.send(b"quiet")
            assert [d.offset for d in world.fill()] == list(
                range(world.next_offset - SLOTS // 2 - 1, world.next_offset)
            )
            world.turn()
            assert not world.fair.waiting
            for delivery in list(world.running_now()):
                world.end(delivery)

    def test_a_quiet_key_has_the_next_free_slot(self) -> None:
        """However much of the noisy one is with the executor already."""
        world = flooded()
        assert world.queued() >= SLOTS
        world.send(b"quiet", 3)
        world.end_of(b"flood", 4)
        assert [d.key for d in world.fill()] == [b"quiet"] * 3 + [b"flood"]

    def test_a_noisy_key_has_every_slot_that_no_other_wants(self) -> None:
        """Alone it loses nothing."""
        world = flooded()
        for _ in range(9):
            assert world.end_of(b"flood") == SLOTS
            assert len(world.fill()) == SLOTS
            world.turn()
        world.end_of(b"flood")
        assert sorted(world.handled) == list(range(10 * SLOTS))

    def test_it_is_noisy_until_nothing_of_it_waits(self) -> None:
        """Also when it has no slot for a while, because others have them all."""
        world = flooded()
        world.send(b"quiet", 3 * SLOTS)
        world.end_of(b"flood")
        assert {d.key for d in world.fill()} == {b"quiet"}
        world.turn()
        assert b"flood" in world.fair.waiting
        while world.running_now():
            world.end(world.running_now()[0])
            world.fill()
            world.turn()
        world.turn()
        assert not world.fair.waiting
        assert len(world.handled) == world.next_offset

    def test_of_two_noisy_keys_the_one_with_fewer_slots_goes_on(self) -> None:
        """Whichever was read first."""
        world = FairWorld()
        world.send(b"a", SLOTS - 5)
        world.send(b"b", 5)
        world.fill()
        world.send(b"a", 50)
        world.send(b"b", 50)
        world.turn()
        assert set(world.fair.waiting) == {b"a", b"b"}
        world.end_of(b"a", 5)
        world.fill()
        assert (world.runs(b"a"), world.runs(b"b")) == (10, 10)

    def test_a_record_without_a_key_is_quiet(self) -> None:
        """It is in no group: all of them together hold every slot."""
        world = FairWorld()
        world.send(None, 5 * SLOTS)
        world.fill()
        world.turn()
        assert not world.fair.waiting

    def test_handlers_that_take_no_time_make_nobody_noisy(self) -> None:
        """All slots are seen at work, and none for a millisecond."""
        world = FairWorld()
        world.send(b"flood", 5 * SLOTS)
        world.fill()
        world.engine.look("bill", world.running_now(), world.now)
        assert not world.fair.waiting

    def test_in_key_order_the_handling_time_counts(self) -> None:
        """A key has one slot at most: who has one of four nearly always is noisy."""
        world = FairWorld(replace(BY_KEY, concurrency=4))
        others = 0
        for n in range(3 * FEWEST_LOOKS):
            world.send(b"flood")
            for _ in range(3):
                others += 1
                world.send(b"quiet-%d" % others)
            world.fill()
            world.turn()
            if n < FEWEST_LOOKS - 1:
                assert not world.fair.waiting
            for delivery in list(world.running_now()):
                world.end(delivery)
        assert set(world.fair.waiting) == {b"flood"}
        world.send(b"flood")
        for n in range(4):
            world.send(b"late-%d" % n)
        assert b"flood" not in {d.key for d in world.fill()}

    def test_what_a_key_used_long_ago_does_not_count(self) -> None:
        """Half of it is forgotten while others have the slots: not for as long as it had them."""
        world = flooded()
        for _ in range(9 * LOOKS):
            world.fair._count({b"flood": SLOTS}, SLOTS)
        looks = 0
        while world.fair._is_noisy(b"flood", 0, SLOTS):
            world.fair._count({b"other-%d" % looks: SLOTS}, SLOTS)
            looks += 1
        assert LOOKS < looks < 2 * LOOKS
        assert len(world.fair._used) < LOOKS


def waits_beside_a_flood(chance: random.Random, *, evenly: bool) -> list[bool]:
    """Of each quiet record, 12 s long, whether it does not start at once when it is read."""
    work_ms, mean_ms = chance.uniform(20, 90), chance.uniform(9, 30)
    world, due, next_ms, waits = flooded(), dict[int, float](), 0.0, list[bool]()
    for now_ms in range(12_000):
        world.now_s += 0.001
        for delivery in list(world.running_now()):
            if due.setdefault(delivery.offset, now_ms + work_ms) <= now_ms:
                world.end(delivery)
        if len(world.fair) < SLOTS:
            world.send(b"flood", 5 * SLOTS)
        came = now_ms >= next_ms
        if came:
            next_ms = now_ms + (mean_ms if evenly else chance.expovariate(1 / mean_ms))
            world.send(b"quiet-%d" % now_ms)
        started = world.fill()
        waits.extend([not any(d.key != b"flood" for d in started)] * came)
    assert world.handled
    return waits


class TestKept:
    """F5: a quiet key finds a free slot, for as many are kept as quiet keys use at a time."""

    def test_a_quiet_key_that_comes_in_waves_never_waits(self) -> None:
        """While a noisy one has all other slots; the first wave alone waits for slots to end."""
        world = flooded()
        for wave in range(20):
            world.send(b"flood", SLOTS)
            for number in range(5):
                world.send(b"quiet-%d-%d" % (wave, number))
            world.end_of(b"flood", 5 if wave == 0 else 1)
            world.fill()
            look(world)
            quiet = [d for d in world.running_now() if d.key != b"flood"]
            assert len(quiet) == 5
            for delivery in quiet:
                world.end(delivery)
            # The noisy key takes none of what they had.
            world.fill()
            assert world.runs(b"flood") <= SLOTS - 5

    def test_slots_that_nobody_else_uses_any_more_are_given_back(self) -> None:
        """All but half after 1.4 s; in the end the noisy key has all."""
        world = flooded()
        world.send(b"flood", 500 * SLOTS)
        for number in range(8):
            world.send(b"quiet-%d" % number)
        world.end_of(b"flood", 8)
        world.fill()
        look(world)
        for delivery in [d for d in world.running_now() if d.key != b"flood"]:
            world.end(delivery)
        kept = []
        while world.runs(b"flood") < SLOTS:
            look(world)
            world.end_of(b"flood")
            world.fill()
            kept.append(world.fair.kept(SLOTS))
            assert world.runs(b"flood") == SLOTS - kept[-1]
        assert kept == sorted(kept, reverse=True)
        assert (kept[0], kept[68]) == (9, 5)
        assert len(kept) < 10 / LOOK_S

    @pytest.mark.parametrize("evenly", [True, False])
    def test_a_quiet_key_waits_for_no_noisy_one_however_looks_fall(self, evenly: bool) -> None:
        """Nearly all start when they are read: of those that come by chance, 199 of 200."""
        waits: list[bool] = []
        for seed in range(6):
            chance = random.Random(seed)
            of_seed = waits_beside_a_flood(chance, evenly=evenly)
            waits += of_seed[len(of_seed) // 10 :]
        assert sum(waits) <= (0.001 if evenly else 0.005) * len(waits)

    def test_what_floods_is_not_kept_for_itself(self) -> None:
        """Before it is known to be noisy it has more than a tenth of the slots already."""
        world = FairWorld()
        world.send(b"flood", SLOTS - 1)
        world.fill()
        world.turn()
        world.send(b"flood", 5 * SLOTS)
        world.fill()
        world.turn()
        assert set(world.fair.waiting) == {b"flood"}
        assert world.fair.kept(SLOTS) == 0

    def test_a_noisy_key_goes_on_where_others_use_all_slots(self) -> None:
        """One slot is never kept."""
        world = FairWorld()
        for number in range(SLOTS):
            world.send(b"quiet-%d" % number)
        world.fill()
        look(world)
        for delivery in list(world.running_now()):
            world.end(delivery)
        world.send(b"flood", 10 * SLOTS)
        world.fill()
        world.turn()
        world.end_of(b"flood")
        world.fill()
        assert (world.fair.kept(SLOTS), world.runs(b"flood")) == (SLOTS - 1, 1)

    def test_a_noisy_key_goes_on_beside_one_that_hangs(self) -> None:
        """Where others may need all slots, what hangs does not take the one that is never kept."""
        world = flooded()
        world.end_of(b"flood")
        world.give_back("bill")
        fair, flood, hung = world.fair, world.fair.waiting[b"flood"], Waiting(hanging=True)
        for _ in range(LOOKS):
            fair._others.seen(SLOTS)
        assert fair.kept(SLOTS) == SLOTS - 1
        fair.waiting[b"hung"], hung.running = hung, 1
        fair._busy[hung] = None
        hung.items.append(flood.items.pop())
        (found,) = fair.take(SLOTS, 5, SLOTS)
        assert set(flood.given) == {found}
        assert fair.take(SLOTS, 5, SLOTS) == []
        assert not fair._has_too_much(SLOTS)

    def test_what_is_given_back_is_the_next_of_its_key(self) -> None:
        """F1, where much more of the key waits; the oldest record holds the floor."""
        world = flooded()
        world.end_of(b"flood")
        offsets = [item.offset for item in world.fair.waiting[b"flood"].items]
        given = world.engine.next_last("bill", 0, world.now)
        assert [delivery.offset for delivery in given] == offsets[: len(given)]
        world.engine.returned("bill", given)
        assert not world.engine.next_units("bill", 0, world.now)
        assert [item.offset for item in world.fair.waiting[b"flood"].items] == offsets

    def test_what_waits_for_others_is_not_enough_to_do(self) -> None:
        """A worker reads on: a quiet record may be behind it in the log."""
        world = flooded()
        queue = world.handler.queue
        assert len(queue) > queue.in_order() == 0
        world.send(b"quiet", 2 * SLOTS)
        assert queue.in_order() + len(world.ready) == 2 * SLOTS


class TestHanging:
    """F3: a key that hangs has a quarter of the slots, and half with redeliveries."""

    def hung(self, rules: HandlerRules = RULES) -> FairWorld:
        """A world in which one record hangs, while others are handled in a moment."""
        world = FairWorld(rules)
        world.send(b"sick")
        world.send(b"fine", 5)
        world.fill()
        world.turn(0.01)
        world.end_of(b"fine")
        world.turn(1.0)
        assert [key for key, each in world.fair.waiting.items() if each.hanging] == [b"sick"]
        return world

    def test_a_key_that_hangs_takes_a_quarter_of_the_slots(self) -> None:
        """Although others are free: they would be lost for the whole consume timeout."""
        world = self.hung()
        world.send(b"sick", 50)
        world.fill()
        assert world.runs(b"sick") == QUARTER
        world.turn(2.0)
        world.fill()
        assert world.runs(b"sick") == QUARTER
        world.send(b"fine", SLOTS)
        assert len(world.fill()) == SLOTS - QUARTER

    def test_the_worker_wakes_for_the_look_that_what_waits_needs(self) -> None:
        """A slot that was lost may be free, and only a look at what runs says so."""
        world = self.hung()
        later_s = world.engine.next_wakeup_s(world.now)
        assert later_s > world.now.mono_s + LOOK_S
        world.send(b"sick", 50)
        world.fill()
        assert world.engine.next_wakeup_s(world.now) <= world.now.mono_s + LOOK_S < later_s

    def test_all_that_hang_have_it_together(self) -> None:
        """Five keys of which one record hangs each, and nothing else starts of them."""
        world = FairWorld()
        world.send(b"fine")
        for n in range(QUARTER):
            world.send(b"sick-%d" % n)
        world.fill()
        world.turn(0.01)
        world.end_of(b"fine")
        world.turn(1.0)
        for n in range(QUARTER):
            world.send(b"sick-%d" % n, 9)
        assert world.fill() == []
        world.end_of(b"sick-0")
        assert len(world.fill()) == 1
        assert len(world.running_now()) == QUARTER

    def test_it_hangs_until_one_of_its_records_is_handled(self) -> None:
        """Its next ones have a quarter of the slots also after the first has timed out."""
        world = self.hung()
        world.turn(60.0)
        assert (world.runs(b"sick"), set(world.fair.waiting)) == (0, {b"sick"})
        world.send(b"sick", 50)
        world.fill()
        assert world.runs(b"sick") == QUARTER
        world.end_of(b"sick")
        world.turn()
        world.fill()
        assert world.runs(b"sick") == SLOTS

    def test_a_failure_shows_that_it_does_not_hang(self) -> None:
        """It has ended by itself."""
        world = self.hung()
        world.turn(60.0)
        world.send(b"sick")
        world.fill()
        world.end(world.running_now()[0], NO)
        world.turn()
        assert not world.fair.waiting

    def test_a_slow_handler_does_not_hang(self) -> None:
        """Ten times what is usual is unusual; what is usual is learned from what is handled."""
        world = FairWorld()
        for _ in range(20):
            world.send(b"slow", 2)
            world.fill()
            world.turn(5.0)
            world.end_of(b"slow")
        world.send(b"slow", SLOTS)
        world.fill()
        world.turn(30.0)
        assert not any(each.hanging for each in world.fair.waiting.values())

    @pytest.mark.parametrize("slots", [1, 2, 3])
    def test_with_few_slots_it_has_one(self, slots: int) -> None:
        """Late, and not never."""
        world = FairWorld(replace(RULES, concurrency=slots))
        world.send(b"sick", 5)
        for _ in range(10):
            world.fill()
            world.turn(60.0)
        assert not world.running_now()
        assert len(world.writes) == 5

    def test_a_function_that_fails_once_leaves_nothing_behind(self) -> None:
        """Nobody has what was given back, whatever its key is by then: it goes on."""
        fails: list[bool] = []
        world = FairWorld(
            replace(RULES, concurrency=1, fair_key=lambda d: None if fails else d.key)
        )
        world.send(b"sick")
        world.fill()
        world.turn(60.0)
        world.send(b"sick", 3)
        world.feed()
        assert len(world.last) == 1
        fails.append(True)
        world.give_back("bill")
        fails.clear()
        assert len(world.fill()) == 1

    def test_only_so_many_are_remembered(self) -> None:
        """The oldest are forgotten."""
        world = FairWorld(replace(RULES, concurrency=5_000))
        for n in range(MOST_TIMED_OUT + 50):
            world.send(b"sick-%d" % n)
        world.fill()
        world.turn(60.0)
        assert not world.running_now()
        world.turn()
        assert len(world.fair.waiting) == MOST_TIMED_OUT


class TestRedeliveries:
    """Those of records that timed out leave room for others."""

    def test_what_timed_out_has_a_quarter_of_the_slots(self) -> None:
        """And what has failed otherwise the rest of the half that redeliveries have."""
        world = FairWorld()
        world.assign(topic=TIER)
        timed_out = (("ackfloor.reason", b"timeout"),)
        world.redeliver(range(30), key=b"sick", headers=timed_out)
        world.tick()
        world.fill()
        assert world.runs(b"sick") == QUARTER
        world.redeliver(range(30, 30 + SLOTS), key=b"fine")
        world.tick()
        world.fill()
        assert (world.runs(b"sick"), world.runs(b"fine")) == (QUARTER, SLOTS // 2 - QUARTER)
        for _ in range(4):
            world.end_of(b"fine")
            world.tick()
            world.fill()
        assert world.runs(b"sick") == QUARTER
        world.end_of(b"sick")
        world.turn(1.0)
        world.fill()
        assert world.runs(b"sick") == QUARTER

    def test_hanging_keys_and_redeliveries_have_half_together(self) -> None:
        """So that healthy records have the other half."""
        world = FairWorld()
        world.assign(topic=TIER)
        world.fair.timed_out(_one(world, b"sick"))
        world.send(b"sick", 50)
        world.redeliver(range(30), key=b"fine")
        world.tick()
        world.fill()
        assert (world.runs(b"sick"), world.runs(b"fine")) == (QUARTER, SLOTS // 2 - QUARTER)


def _one(world: FairWorld, key: bytes) -> TrackedDelivery:
    world.send(key)
    (delivery,) = world.fill()
    world.end(delivery)
    return delivery


class TestEnds:
    """F1: whatever becomes of its partition, its handler or its executor, nothing is lost."""

    def test_what_was_given_comes_back_and_out_again(self) -> None:
        """A pause asks for everything back."""
        world = flooded()
        world.engine.hold("bill", 5.0, "away", world.now)
        world.take()
        assert (world.queued(), len(world.handler.queue)) == (0, 9 * SLOTS)
        world.turn(5.0)
        while world.running_now():
            world.end(world.running_now()[0])
            world.fill()
            world.turn()
        assert sorted(world.handled) == list(range(10 * SLOTS))

    def test_nothing_is_left_of_a_partition_that_has_gone(self) -> None:
        """Whatever waited of it, and wherever."""
        world = flooded()
        world.engine.drop([TopicPartition("orders", 0)], lost=True)
        world.take()
        world.turn()
        assert len(world.handler.queue) == 0
        world.turn()
        assert not world.fair.waiting

    def test_a_breaker_that_is_not_closed_tries_any(self) -> None:
        """What waits apart is in the queue again, first in its order."""
        world = flooded()
        world.give_back("bill")
        world.feed()
        waits = len(world.fair)
        assert waits
        world.handler.queue.gather()
        assert (len(world.fair), len(world.handler.queue.items)) == (0, waits)

    @pytest.mark.parametrize("rules", [RULES, BY_KEY])
    def test_when_it_is_switched_off_all_start_in_their_order(self, rules: HandlerRules) -> None:
        """Also what waits apart, and what the executor has for slots that have nothing else."""
        world = FairWorld(replace(rules, fair_key=lambda _: b"all"))
        for n in range(10 * SLOTS):
            world.send(b"%d" % n)
        world.fill()
        world.turn()
        world.fill()
        assert world.last
        assert len(world.fair)
        reload(world, None)
        assert (world.handler.queue.fair, list(world.last)) == (None, [])
        assert world.queued() + len(world.handler.queue) == 9 * SLOTS
        # Whatever comes now does not go before them.
        world.send(b"late", 1)
        while world.running_now():
            world.end(world.running_now()[0])
            world.fill()
        assert sorted(world.handled) == list(range(world.next_offset))
        assert world.handled[-1] == world.next_offset - 1

    def test_it_is_switched_on_again_by_what_is_said_then(self) -> None:
        """What was noisy by the Kafka key is not by another."""
        world = flooded()
        reload(world, lambda delivery: b"group" if delivery.offset % 2 else None)
        world.turn()
        assert set(world.fair.waiting) == {b"group"}

    def test_other_settings_leave_what_is_noisy_alone(self) -> None:
        """A reload replaces all rules, whichever changed."""
        world = flooded()
        reload(world, kafka_key)
        assert set(world.fair.waiting) == {b"flood"}

    def test_a_suspect_is_found_where_it_waits(self) -> None:
        """It is to run alone."""
        world = flooded()
        waits = next(iter(world.fair.waiting[b"flood"].items))
        world.handler.queue.make_exclusive(waits)  # type: ignore[arg-type]
        assert list(world.handler.queue.exclusive) == [waits]
        other = next(iter(world.fair.waiting[b"flood"].items))
        assert world.handler.queue.withdraw(other)  # type: ignore[arg-type]
        assert not world.handler.queue.withdraw(other)  # type: ignore[arg-type]


def test_a_crash_suspect_that_has_its_turn_waits_for_no_other() -> None:
    """Its key hangs, and redeliveries wait for their turn behind it, with all the room."""
    world = FairWorld()
    world.assign(topic=TIER)
    retries = range(SLOTS // 2)
    world.engine.suspects.learn(
        [("orders", 0, 1, 1, "died"), *((TIER, 0, offset, 1, "died") for offset in retries)]
    )
    world.fair.timed_out(_one(world, b"sick"))
    world.send(b"sick")
    world.redeliver(retries, key=b"fine")
    world.tick()
    for _ in range(SLOTS):
        world.engine.suspects.tick(world.now, quiet=not world.running_now())
        world.take()
        for delivery in world.fill():
            world.end(delivery)
        world.turn()
    assert sorted(world.handled) == sorted([0, 1, *retries])
    assert not world.engine.suspects.active


def test_looks_are_not_taken_at_every_turn() -> None:
    """They cost a little for each slot."""
    world = FairWorld()
    assert not world.engine.look_due("bill", world.now)
    world.now_s += LOOK_S
    assert world.engine.look_due("bill", world.now)
    assert not FairWorld(replace(RULES, fair_key=None)).engine.look_due("bill", world.now)
