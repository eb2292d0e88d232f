"""LeaderEpochs: the epochs of what was read, as steps."""

from __future__ import annotations

from ackfloor.core.acks.leader_epochs import UNKNOWN, LeaderEpochs
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import MemoryRecord, World


def read(*offsets_and_epochs: tuple[int, int]) -> list[TrackedDelivery]:
    """Deliveries of records at these offsets, written in these epochs."""
    world = World(HandlerRules("bill"))
    world.assign()
    records = [
        MemoryRecord("orders", 0, offset, _leader_epoch=epoch)
        for offset, epoch in offsets_and_epochs
    ]
    world.engine.polled(records, world.now)
    return list(world.engine.assignments["orders", 0].tracker.open.values())


def test_after_a_rewind_another_log_may_be_read() -> None:
    """What is read again may have been written under a newer leader, at lower offsets."""
    epochs = LeaderEpochs()
    epochs.note(read((10, 1), (20, 4), (30, 5)))
    assert (epochs.at(25), epochs.at(40), epochs.read_to) == (4, 5, 31)
    epochs.rewind(20)
    assert (epochs.at(19), epochs.at(40), epochs.read_to) == (1, 1, -1)
    epochs.note(read((15, 6)))
    assert (epochs.at(14), epochs.at(15), epochs.read_to) == (1, 6, 16)
    epochs.rewind(0)
    assert epochs.at(40) == UNKNOWN
