"""After a crash or a rebalance: what the last commit holds as settled is not handled again."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.acks.gap_set import LONGEST, decode, topic_hash
from ackfloor.core.acks.leader_epochs import UNKNOWN, LeaderEpochs
from ackfloor.core.messages.commands import Pause, Resume
from ackfloor.core.messages.events import MetadataIgnored, RecordsLost, RecordsSkipped
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.records.record import CommitPosition, StartPosition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.commit_schedule import commit_position
from tests.examples import examples
from tests.framework.core.worlds import MemoryRecord, World

TOO_LARGE = "OFFSET_METADATA_TOO_LARGE: the broker takes less"


def last_commit(world: World) -> CommitPosition:
    """What the worker commits now."""
    world.tick(1)
    (position,) = world.answer_commit().positions
    return position


def restarted(commit: CommitPosition, **given: object) -> World:
    """Another worker, which starts from a commit."""
    world = World()
    start = StartPosition("orders", 0, commit.position, metadata=commit.metadata)
    world.engine.assign([start._replace(**given)], world.now)
    world.take()
    return world


def read(world: World, offsets: range | list[int], epoch: int | None = 0) -> list[int]:
    """Records are read; returns the offsets that handlers get."""
    records = [MemoryRecord("orders", 0, offset, _leader_epoch=epoch) for offset in offsets]
    world.engine.polled(records, world.now)
    world.take()
    return [item.offset for item in world.ready if isinstance(item, TrackedDelivery)]


def stuck_at_the_floor(count: int = 10) -> World:
    """Record 0 runs for ever, all others are handled."""
    world = World()
    world.assign()
    world.read(range(count))
    world.start()
    for _ in range(count - 1):
        world.finish(world.start())
    return world


def test_one_stuck_record_and_a_crash_repeat_that_record_alone() -> None:
    """Ten thousand that were settled above it are skipped, counted, and never dispatched."""
    commit = last_commit(stuck_at_the_floor(10_001))
    assert commit.position == 0
    after = restarted(commit)
    assert read(after, range(10_003)) == [0, 10_001, 10_002]
    assert after.told(RecordsSkipped) == [RecordsSkipped("orders", 0, "bill", 10_000)]
    assert after.engine.flow.open_count == 3


def test_a_commit_is_due_when_only_the_gap_set_has_changed() -> None:
    """The floor stands still behind a stuck record, and still every second tells more."""
    world = stuck_at_the_floor(3)
    first = last_commit(world)
    world.tick(1)
    assert not world.commits
    world.read([3])
    world.finish(world.start())
    second = last_commit(world)
    assert (first.position, second.position) == (0, 0)
    assert decode(second.metadata, "orders", 0).runs == ((1, 4),)


def test_a_refused_commit_leaves_what_it_would_have_said_to_the_next() -> None:
    """Nothing counts as committed that the broker did not take."""
    world = stuck_at_the_floor(3)
    world.tick(1)
    world.answer_commit("REQUEST_TIMED_OUT")
    assert decode(last_commit(world).metadata, "orders", 0).runs == ((1, 3),)


def test_what_was_restored_and_not_read_yet_is_in_the_next_commit() -> None:
    """A second crash right after the first forgets nothing."""
    commit = last_commit(stuck_at_the_floor(100))
    after = restarted(commit)
    read(after, range(5))
    after.finish(after.start())
    again = last_commit(after)
    assert (again.position, decode(again.metadata, "orders", 0).runs) == (5, ((5, 100),))
    final = restarted(again)
    assert read(final, range(5, 103)) == [100, 101, 102]


def test_the_last_commit_before_a_partition_leaves_says_it_too() -> None:
    """The next owner skips what this one has settled."""
    world = stuck_at_the_floor(4)
    (final,) = world.revoke()
    assert read(restarted(final), range(6)) == [0, 4, 5]


def test_a_log_that_begins_above_the_floor_now_repeats_nothing_that_was_settled() -> None:
    """Retention has taken the stuck record and some of the settled ones: one record is lost."""
    world = restarted(last_commit(stuck_at_the_floor()), position=5, lost=5)
    assert world.told(RecordsLost) == [RecordsLost("orders", 0, 1)]
    assert world.told(MetadataIgnored) == []
    assert read(world, range(5, 12)) == [10, 11]


def test_a_seek_back_after_a_pause_skips_nothing_twice() -> None:
    """A resumed fetch delivers some records again; the counts stay right."""
    after = restarted(last_commit(stuck_at_the_floor(10)))
    assert read(after, range(5)) == [0]
    assert read(after, range(12)) == [0, 10, 11]
    assert sum(event.count for event in after.told(RecordsSkipped)) == 9


def test_a_record_of_a_newer_leader_epoch_is_another_record() -> None:
    """The log was truncated and written again: what is at a settled offset was never handled."""
    commit = last_commit(stuck_at_the_floor(10))
    after = restarted(commit)
    assert read(after, range(4), epoch=0) == [0]
    assert read(after, range(4, 12), epoch=1) == [0, *range(4, 12)]
    again = last_commit(after)
    assert decode(again.metadata, "orders", 0).runs == ((1, 4),)


def test_records_without_a_leader_epoch_are_skipped_as_well() -> None:
    """An old message format says none, before and after."""
    world = World()
    world.assign()
    read(world, range(4), epoch=None)
    world.start()
    for _ in range(3):
        world.finish(world.start())
    commit = last_commit(world)
    assert decode(commit.metadata, "orders", 0).leader_epoch == UNKNOWN
    assert read(restarted(commit), range(5), epoch=None) == [0, 4]


def test_the_epoch_of_an_offset_is_that_of_the_last_step_below_it() -> None:
    """Elections in the middle of a batch, and batches that say nothing new."""
    world = World()
    world.assign()
    assignment = world.engine.assignments["orders", 0]
    epochs = LeaderEpochs()
    assert epochs.at(100) == UNKNOWN
    for batch in ([(3, 1), (4, 1)], [(5, 1), (9, 4), (10, 4)], [(11, None)], [(12, 4), (20, 5)]):
        records = [(n, MemoryRecord("orders", 0, n, _leader_epoch=e)) for n, e in batch]
        epochs.note([TrackedDelivery(assignment, record, n, 2, 0.0) for n, record in records])
    found = [epochs.at(n) for n in (2, 3, 8, 9, 11, 19, 20, 99)]
    assert found == [UNKNOWN, 1, 1, 4, 4, 4, 5, 5]


def test_a_commit_tells_the_epoch_of_the_record_at_the_floor() -> None:
    """Or of the one just below it, if nothing is open."""
    world = World()
    world.assign()
    read(world, range(4), epoch=1)
    read(world, range(4, 8), epoch=3)
    for _ in range(4):
        world.finish(world.start())
    assert (last_commit(world).position, last_commit_epoch(world)) == (4, 3)
    for _ in range(4):
        world.finish(world.start())
    assert (last_commit(world).position, last_commit_epoch(world)) == (8, 3)


def test_a_commit_tells_no_epoch_that_would_be_a_guess() -> None:
    """What is between the last record and the floor may be of a newer one: a marker, a gap."""
    world = World()
    world.assign()
    read(world, range(4), epoch=1)
    for _ in range(4):
        world.finish(world.start())
    world.engine.passed({("orders", 0): 5})
    commit = last_commit(world)
    assert (commit.position, commit.leader_epoch) == (5, UNKNOWN)


def test_the_epoch_of_a_commit_outlives_workers_that_read_nothing() -> None:
    """It goes with its position, and with no other one."""
    world = World()
    start = StartPosition("orders", 0, 8, leader_epoch=3)
    world.engine.assign([start], world.now)
    assert last_commit_epoch(world) == 3
    world.engine.assign([start._replace(position=9, lost=1)], world.now)
    assert last_commit_epoch(world) == UNKNOWN


def last_commit_epoch(world: World) -> int:
    """The leader epoch that a commit made now tells."""
    return commit_position(world.engine.assignments["orders", 0]).leader_epoch


@pytest.mark.parametrize(
    ("metadata", "given"),
    [
        ("", {}),
        ("another tool's", {}),
        ("af2r00000000", {}),
        (None, {"position": 1}),
        (None, {"log_end": 5}),
        (None, {"topic_id": "another"}),
    ],
)
def test_in_doubt_everything_above_the_floor_comes_again(
    metadata: str | None, given: dict[str, object]
) -> None:
    """Foreign, newer, of another position or topic, beyond the log: the floor alone counts."""
    world = World()
    world.engine.assign([StartPosition("orders", 0, 0, topic_id="an id")], world.now)
    read(world, range(10))
    world.start()
    for _ in range(9):
        world.finish(world.start())
    commit = last_commit(world)
    assert decode(commit.metadata, "orders", 0).topic_hash == topic_hash("an id")
    text = commit.metadata if metadata is None else metadata
    after = restarted(commit._replace(metadata=text), **given)
    first = after.engine.assignments["orders", 0].tracker.position
    assert read(after, range(first, 12)) == list(range(first, 12))
    assert len(after.told(MetadataIgnored)) == (0 if text == "" else 1)
    assert not after.told(RecordsSkipped)


def scattered(world: World, span: int) -> None:
    """Every second record of a span is handled, at random distances from the next."""
    pick = random.Random(5)
    world.read(range(span))
    for _ in range(span):
        delivery = world.start()
        if delivery.offset and pick.random() < 0.5:
            world.engine.answered([answered(delivery)], world.now)
    world.take()


def answered(delivery: TrackedDelivery) -> TrackedDelivery:
    """A delivery whose handler has returned."""
    delivery.outcome = ACKED
    return delivery


def test_fetching_stops_before_a_gap_set_no_longer_fits() -> None:
    """And goes on once it has shrunk: the partition waits, the records do not repeat."""
    world = World()
    world.assign()
    scattered(world, 21_000)
    commit = last_commit(world)
    assert LONGEST * 3 // 4 < len(commit.metadata) <= LONGEST
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)] == [Pause]
    for delivery in list(world.engine.assignments["orders", 0].tracker.open.values()):
        world.engine.answered([answered(delivery)], world.now)
    last_commit(world)
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)] == [Pause, Resume]


def test_what_does_not_fit_is_cut_from_above() -> None:
    """Records that were in flight when fetching stopped may still outgrow a commit."""
    world = World()
    world.assign()
    scattered(world, 60_000)
    commit = last_commit(world)
    assert LONGEST - 20 < len(commit.metadata) <= LONGEST
    kept = decode(commit.metadata, "orders", 0).runs
    whole = world.engine.assignments["orders", 0].tracker.gap_runs()
    assert list(kept) == list(whole[: len(kept)])


def test_a_broker_that_takes_less_metadata_gets_less() -> None:
    """Its limit was lowered: the next commit is half as long, and the floor never stands still."""
    world = World()
    world.assign()
    scattered(world, 21_000)
    lengths = []
    for _ in range(6):
        world.tick(1)
        commit = world.commits[0].positions[0]
        lengths.append(len(commit.metadata))
        assert commit.position == 0
        world.answer_commit(TOO_LARGE)
    assert all(shorter <= longer // 2 for longer, shorter in pairwise(lengths))
    assert lengths[-1] == 0
    assert world.engine.assignments["orders", 0].commit.position == 0
    for delivery in list(world.engine.assignments["orders", 0].tracker.open.values()):
        world.engine.answered([answered(delivery)], world.now)
    assert last_commit(world).position == 21_000
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)][-1] is Resume


@given(data=st.data(), count=st.integers(1, 60))
@examples(60)
def test_whatever_is_settled_and_committed_is_never_handled_again(
    data: st.DataObject, count: int
) -> None:
    """Any records settled, any commit, any crash, three times over: all handled, none again
    that a commit held; what no commit held comes again."""
    durable: set[int] = set()

    commit = CommitPosition("orders", 0, 0, "", 0)
    for _ in range(3):
        world, handled = restarted(commit), set(durable)
        read(world, range(commit.position, count))
        given_out = {item.offset for item in world.ready if isinstance(item, TrackedDelivery)}
        assert given_out == set(range(count)) - durable
        for _ in range(len(given_out)):
            delivery = world.start()
            if data.draw(st.booleans()):
                world.finish(delivery)
                handled.add(delivery.offset)
                if data.draw(st.integers(0, 5)) == 0:
                    world.tick(1)
                    while world.commits:
                        commit = world.answer_commit().positions[0]
                        durable = set(handled)
        assert set(range(commit.position)) <= durable


@given(data=st.data(), steps=st.lists(st.integers(0, 9), min_size=20, max_size=80))
@examples(80)
def test_two_workers_that_both_think_a_partition_theirs_lose_nothing(
    data: st.DataObject, steps: list[int]
) -> None:
    """Kafka takes the commits of both, and the last one stands: whatever it says is true, because
    each says only what its worker has settled, or read from a commit at its start."""
    count, handled = 30, set[int]()
    commit = CommitPosition("orders", 0, 0, "", 0)
    owners = [restarted(commit) for _ in range(2)]
    for step in steps:
        index = data.draw(st.integers(0, 1))
        world = owners[index]
        if step < 2:
            position = world.engine.assignments["orders", 0].tracker.position
            read(world, range(position, min(count, position + 7)))
        elif step < 7 and world.ready:
            world.ready.rotate(data.draw(st.integers(0, len(world.ready))))
            delivery = world.start()
            world.finish(delivery)
            handled.add(delivery.offset)
        elif step < 9:
            world.tick(1)
            while world.commits:
                commit = world.answer_commit().positions[0]
                gaps = decode(commit.metadata, "orders", 0)
                told = {offset for run in gaps.runs for offset in range(*run)}
                assert set(range(commit.position)) | told <= handled
        else:
            owners[index] = restarted(commit)
