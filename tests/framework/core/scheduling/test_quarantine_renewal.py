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
    LONG,
    SHORT,
    SOURCE,
    START_MS,
    QuarantineWorld,
    parked_headers,
    rules,
)

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
    (seen,) = renewals._only_heads.values()
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
