"""Renewals with many keys: a look costs what was read, and is not repeated for nothing.

The rest is in test_quarantined_keys.py.
"""

from __future__ import annotations

import pytest

from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.quarantine import Quarantine
from ackfloor.core.records.envelope import Reason
from ackfloor.core.scheduling import quarantine_renewal
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    START_MS,
    QuarantineWorld,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import DLQ

KEYS, BUFFER = 40, 4
LATER_MS = START_MS + 3_600_000


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Quarantine]:
    """The keys that were looked at, each as often as it was."""
    seen: list[Quarantine] = []
    unread = Quarantine.unread

    def noted(self: Quarantine) -> object:
        seen.append(self)
        return unread(self)

    monkeypatch.setattr(Quarantine, "unread", noted)
    return seen


def full_of_heads() -> QuarantineWorld:
    """A worker whose retry partition is full of heads; those of other keys are further on."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=BUFFER))
    world.stored[SOURCE, 0] = (KEYS, "")
    for origin in range(KEYS - 1):
        world.append(LONG, b"k%d" % origin, headers=parked_headers(origin, due_ms=LATER_MS))
    world.gain()
    world.engine.polled(world.logs[LONG, 0][:BUFFER], world.now)
    world.take()
    assert world.engine.assignments[LONG, 0].paused
    return world


def wait(world: QuarantineWorld) -> None:
    """Time for several looks passes."""
    for _ in range(5):
        world.tick(10 * quarantine_renewal.LOOK_S)


def test_a_partition_that_is_full_of_heads_is_looked_at_once(looks: list[Quarantine]) -> None:
    """No key is, however many there are."""
    world = full_of_heads()
    wait(world)
    assert looks == []
    assert not world.writes
    renewals = world.engine._quarantines._renewals
    ((seen, _),) = renewals._only_heads.values()
    assert seen == {world.engine.assignments[LONG, 0]: BUFFER}


def test_what_was_read_since_is_looked_at(looks: list[Quarantine]) -> None:
    """A record that waits behind a head is written anew where another head is further on."""
    world = full_of_heads()
    wait(world)
    world.append(SHORT, b"k0", headers=parked_headers(KEYS - 1, reason=Reason.BEHIND, attempt=0))
    world.poll(SHORT)
    world.append(LONG, b"k0", headers=parked_headers(KEYS, reason=Reason.BEHIND, attempt=0))
    last = world.logs[LONG, 0][-1:]
    world.engine.polled(last, world.now)
    world.take()
    wait(world)
    assert (LONG, 0, KEYS, Reason.BEHIND) in world.leaving()
    assert 0 < len(looks) < 3 * KEYS


def test_what_is_read_while_a_transaction_leads_there_is_looked_at_again() -> None:
    """It has no place in its key's order before the end, and nothing more is read meanwhile."""
    world = QuarantineWorld(
        rules(after_dead_letter="dead_letter"),
        transactional=True,
        limits=FlowLimits(tier_buffer=BUFFER),
    )
    world.stored[SOURCE, 0] = (KEYS, "")
    world.append(SHORT, headers=parked_headers(0))
    for origin in range(1, 1 + BUFFER):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll(SHORT)
    world.tick()
    world.handle(HOPELESS)
    assert [write.topic for write in world.transactions[0].writes] == [DLQ, LONG]
    world.poll(LONG)
    assert world.engine.assignments[LONG, 0].paused
    wait(world)
    for _ in range(20):
        world.commit_transactions()
        world.poll()
        world.tick(1.0)
        world.answer_commits()
    assert [offset for offset, _ in world.waiting_in(DLQ)] == list(range(1 + BUFFER))


def test_a_look_in_vain_at_all_keys_makes_the_next_one_wait(looks: list[Quarantine]) -> None:
    """Nothing that has to be read is in the partition that is full."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=BUFFER))
    world.stored[SOURCE, 0] = (KEYS, "")
    world.append(LONG, b"k0", headers=parked_headers(0, due_ms=LATER_MS))
    for origin in range(1, 1 + BUFFER):
        world.append(LONG, b"k0", headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    for origin in range(1 + BUFFER, KEYS):
        world.append(SHORT, b"k%d" % origin, headers=parked_headers(origin, due_ms=LATER_MS))
    world.gain()
    world.poll(LONG)
    world.tick()
    keys = len(world.quarantined)
    assert len(looks) == keys
    world.tick(quarantine_renewal.LOOK_S + 0.5 * quarantine_renewal.LOOK_EACH_S * keys)
    assert len(looks) == keys
    world.tick(quarantine_renewal.LOOK_EACH_S * keys)
    assert len(looks) == 2 * keys
    assert not world.writes


def held_partition(others: int) -> QuarantineWorld:
    """A retry partition full of what a held record keeps; records without a key are further on."""
    world = QuarantineWorld(rules(after_dead_letter="hold"), limits=FlowLimits(tier_buffer=BUFFER))
    world.stored[SOURCE, 0] = (KEYS, "")
    world.append(LONG, headers=parked_headers(0, reason=Reason.HELD))
    for origin in range(1, BUFFER + 2):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    for origin in range(others):
        world.append(LONG, None, headers=parked_headers(BUFFER + 2 + origin))
    world.gain()
    world.engine.polled(world.logs[LONG, 0][:BUFFER], world.now)
    world.take()
    assert world.engine.assignments[LONG, 0].paused
    return world


def test_a_record_without_a_key_gets_past_what_is_held() -> None:
    """It was found at the takeover: what is held is written behind it, once."""
    world = held_partition(others=1)
    world.come_to_rest()
    assert world.handled == [(0, BUFFER + 2)]
    assert world.engine.assignments[LONG, 0].others_unread == 0
    ends = len(world.logs[LONG, 0])
    world.come_to_rest()
    assert len(world.logs[LONG, 0]) == ends


def test_a_record_that_nobody_knows_of_gets_past_what_is_held_in_time() -> None:
    """An operator has redriven it, or another worker wrote it."""
    world = held_partition(others=0)
    world.append(LONG, b"other", headers=parked_headers(KEYS - 1, replays=1, attempt=0))
    wait(world)
    assert not world.writes
    for _ in range(3):
        world.tick(quarantine_renewal.UNKNOWN_S)
        world.confirm_all()
        world.poll()
        world.tick(1.0)
        world.handle_all()
    assert world.handled == [(0, KEYS - 1)]


def test_a_record_without_a_key_that_is_parked_now_gets_past_what_is_held() -> None:
    """The worker that wrote it knows that it has to be read."""
    world = held_partition(others=0)
    world.append(SOURCE, None)
    world.logs[SOURCE, 0][-1]._offset = KEYS
    world.engine.polled(world.logs[SOURCE, 0][-1:], world.now)
    world.take()
    world.handle(BOOM)
    world.confirm_all()
    assert world.engine.assignments[SHORT, 0].others_unread == 1
    world.come_to_rest()
    assert world.handled == [(0, KEYS)]
    assert world.engine.assignments[SHORT, 0].others_unread == 0


def test_a_copy_that_is_read_before_its_write_is_confirmed_is_what_counts() -> None:
    """The broker was quicker with the record than with its answer."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("a")
    world.handle(BOOM)
    world.store(world.writes[0])
    world.poll()
    write = world.writes.pop(0)
    world.engine.published((write,), world.now)
    world.take()
    world.come_to_rest()
    assert world.handled == [(0, 0)]
    assert not world.quarantined


def full_of(*keys: bytes, buffer: int, held: int) -> QuarantineWorld:
    """A retry partition of which so much was read as there is room for: a held record and those
    behind it, then one record of each of these keys."""
    world = QuarantineWorld(rules(after_dead_letter="hold"), limits=FlowLimits(tier_buffer=buffer))
    world.append(LONG, headers=parked_headers(0, reason=Reason.HELD))
    for origin in range(1, held):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    for origin, key in enumerate(keys, held):
        world.append(LONG, key, headers=parked_headers(origin, due_ms=LATER_MS))
    world.stored[SOURCE, 0] = (held + len(keys), "")
    world.gain()
    read_more(world, buffer)
    assert world.engine.assignments[LONG, 0].paused
    return world


def read_more(world: QuarantineWorld, count: int) -> None:
    """So many records of the retry partition are read."""
    position = world.engine.assignments[LONG, 0].tracker.position
    world.engine.polled(world.logs[LONG, 0][position : position + count], world.now)
    world.take()


@pytest.mark.parametrize(
    ("held", "renewed"), [(4, [0, 1, 2, 3]), (2, [0, 1, 3, 4, 5, 6, 7])], ids=["half", "less"]
)
def test_what_goes_on_soon_stays_where_others_make_enough_room(
    held: int, renewed: list[int]
) -> None:
    """It would have to come round once for each of its records."""
    world = full_of(*[b"goes on"] * (8 - held), b"far", buffer=8, held=held)
    world.tick(quarantine_renewal.LOOK_S)
    assert [origin for _, _, origin, _ in world.leaving()] == renewed


def test_a_partition_rests_after_a_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held comes round and round while the heads of others are further on."""
    monkeypatch.setattr(quarantine_renewal, "REST_EACH_S", 1.0)
    world = full_of(b"far", buffer=5, held=20)
    world.tick(quarantine_renewal.LOOK_S)
    assert len(world.writes) == 5
    world.confirm_all()
    read_more(world, 5)
    world.tick(4.9)
    assert not world.writes
    world.tick(quarantine_renewal.LOOK_S)
    assert [origin for _, _, origin, _ in world.leaving()] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("keys", ["a", "ab", "abcdefgh"])
def test_what_was_read_of_the_source_again_makes_room_for_what_it_waits_for(
    keys: str, transactional: bool
) -> None:
    """Its copies may have been removed, so it has its place; its head is in a retry topic."""
    parked = 16
    world = QuarantineWorld(
        rules(), transactional=transactional, limits=FlowLimits(max_open=8, partition_open=8)
    )
    world.append(LONG, b"z", headers=parked_headers(parked))
    for number in range(parked):
        key = keys[number % len(keys)].encode()
        behind = number >= len(keys)
        reason = {"reason": Reason.BEHIND, "attempt": 0} if behind else {}
        world.append(SOURCE, key)
        world.append(LONG, key, headers=parked_headers(number, **reason))
    # The commit of the source did not get through, but for the heads.
    world.stored[SOURCE, 0] = (len(keys), "")
    world.gain()
    world.remove(LONG, below=1)
    world.poll(SOURCE)
    assert world.engine.assignments[LONG, 0].paused
    for _ in range(40):
        world.commit_transactions()
        world.come_to_rest()
    assert sorted(offset for _, offset in world.handled) == list(range(parked))
    for key in keys:
        of_key = [o for _, o in world.handled if keys[o % len(keys)] == key]
        assert of_key == sorted(of_key)
    assert not world.quarantined
    assert world.open(SOURCE) == world.open(LONG) == []
