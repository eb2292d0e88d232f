"""Transactions, case by case: what goes together, what waits, and what an abort does to whom."""

from __future__ import annotations

import pytest

from ackfloor.core.acks.gap_set import decode
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.events import PublishFailed, RecordDeadLettered, RecordParked
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.outbox.transactional_outbox import LOOK_AGAIN_S, MOST_BYTES, MOST_WRITES
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.outcomes import ACKED, Failed, Rejected
from ackfloor.core.records.record import CommitPosition, Failure, StartPosition, TopicPartition
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, TIER, MemoryRecord, World

BOOM = Failed(Failure("Boom", "x"))
HOPELESS = Rejected(Failure("Hopeless", "x"))


def world_of(count: int = 0, partitions: int = 1, **given: object) -> World:
    """A world with transactional parking, whose partitions hold `count` records each."""
    world = World(transactional=True, **given)  # type: ignore[arg-type]
    for partition in range(partitions):
        world.assign(partition)
        if count:
            world.read(range(count), partition)
    return world


def offsets(transaction: Transaction) -> list[int]:
    """The offsets of what a transaction parks."""
    return [write.delivery.offset for write in transaction.writes]


def settled(position: CommitPosition) -> tuple[int, list[tuple[int, int]]]:
    """What a commit says: its floor, and the runs above it."""
    runs = decode(position.metadata, position.topic, position.partition).runs
    return position.position, list(runs)


def wait(world: World) -> None:
    """Time passes until parcels that no commit could carry are looked at again."""
    world.tick(LOOK_AGAIN_S)
    while world.commits:
        world.answer_commit()


def test_an_engine_says_whether_it_parks_in_transactions() -> None:
    """Its shell asks for the end of one only then."""
    assert World(transactional=True).engine.transactional
    assert not World().engine.transactional


def test_a_parcel_goes_with_the_commit_that_settles_its_record() -> None:
    """The commit is made as if it were written; the record is settled when it is."""
    world = world_of(4)
    world.start()
    failed = world.start()
    world.finish(failed, BOOM)
    (transaction,) = world.transactions
    assert offsets(transaction) == [1]
    assert transaction.writes[0].topic == TIER
    assert [settled(position) for position in transaction.positions] == [(0, [(1, 2)])]
    assert 1 in world.engine.assignments["orders", 0].tracker.open
    world.end_transaction()
    assert 1 not in world.engine.assignments["orders", 0].tracker.open
    assert len(world.told(RecordParked)) == 1
    assert world.tick(2.0) == []
    assert not world.commits, "the transaction's commit was one"


def test_what_fails_meanwhile_goes_together_in_the_next() -> None:
    """One at a time; the next takes what has gathered, of all partitions."""
    world = world_of(6, 2)
    for _ in range(4):
        world.finish(world.start(), BOOM)
    assert [offsets(t) for t in world.transactions] == [[0]]
    while world.ready:
        world.finish(world.start(), HOPELESS)
    world.end_transaction()
    (second,) = world.transactions
    assert [(p.topic, p.delivery.partition) for p in second.writes] == [
        *[(TIER, 0)] * 3, *[(DLQ, 0)] * 2, *[(DLQ, 1)] * 6
    ]  # fmt: skip
    assert [(p.partition, p.position) for p in second.positions] == [(0, 6), (1, 6)]
    world.end_transaction()
    assert world.engine.flow.open_count == 0
    assert len(world.told(RecordDeadLettered)) == 8


def test_no_plain_commit_while_a_transaction_is_under_way() -> None:
    """Rule 2: it would survive the transaction's and undo it."""
    world = world_of(3, 2)
    world.finish(world.start(), BOOM)
    world.finish(world.start())
    world.finish(world.ready[-1] and world.start(), ACKED)
    done = next(d for d in world.ready if d.partition == 1)
    world.finish(done)
    world.tick(2.0)
    assert [[p.partition for p in c.positions] for c in world.commits] == [[1]]
    assert world.engine.transacting([TopicPartition("orders", 0)])
    world.end_transaction()
    world.tick(2.0)
    assert [p.partition for c in world.commits[1:] for p in c.positions] == [0]


def test_a_parcel_waits_for_an_outstanding_commit() -> None:
    """The lane is taken; another partition's parcel goes."""
    world = world_of(2, 2)
    world.finish(world.start())
    world.tick(2.0)
    world.finish(world.start(), BOOM)
    assert world.transactions == []
    other = world.start()
    world.finish(other, BOOM)
    assert [p.delivery.partition for p in world.transactions[0].writes] == [1]
    world.answer_commit()
    world.end_transaction()
    assert [p.delivery.partition for p in world.transactions[0].writes] == [0]


def test_a_commit_in_doubt_is_repeated_before_a_parcel_goes() -> None:
    """It may be stored yet, and then undo the transaction's: a confirmed one comes first."""
    world = world_of(2)
    world.finish(world.start())
    world.tick(2.0)
    world.finish(world.start(), BOOM)
    world.answer_commit("timed out")
    assert world.transactions == []
    world.tick(2.0)
    assert len(world.commits) == 1
    world.answer_commit()
    assert len(world.transactions) == 1


def test_a_late_answer_to_a_plain_commit_frees_no_lane() -> None:
    """The lane is the transaction's until that has ended."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    late = CommitPosition("orders", 0, 0, "", world.engine.assignments["orders", 0].epoch)
    world.engine.committed([(late, None)], world.now)
    assert world.engine.assignments["orders", 0].commit.outstanding


def test_a_partition_in_a_transaction_has_no_final_commit() -> None:
    """Rule 2 when it leaves too: the next owner waits for the transaction's end instead."""
    world = world_of(3, 2)
    world.finish(world.start(), BOOM)
    world.finish(next(d for d in world.ready if d.partition == 1))
    assert world.revoke(0) == ()
    assert [p.partition for p in world.revoke(1)] == [1]
    world.end_transaction()
    assert world.told(RecordParked) == []


def test_a_commit_of_a_partition_that_left_does_not_show_how_a_transaction_ended() -> None:
    """T6: its next owner may have committed the very same, and what stays here was not written."""
    world = world_of(3, 2)
    running = [world.start() for _ in range(6)]
    failed = [running[0], running[3]]
    for delivery in failed:
        delivery.outcome = BOOM
    world.engine.answered(failed, world.now)
    world.take()
    [transaction] = world.transactions
    gone, stays = (
        {TopicPartition(p.topic, p.partition): (p.position, p.metadata)}
        for p in transaction.positions
    )
    assert transaction.is_in(gone)
    world.revoke(0)
    assert not transaction.is_in(gone)
    assert transaction.is_in(gone | stays)
    world.assign(0)
    assert not transaction.is_in(gone), "it may have been another's in between"
    assert transaction.is_in(stays)
    world.revoke(1)
    assert not transaction.is_in(gone | stays), "nothing of it is settled here"


@pytest.mark.parametrize("outcome", [COMMITTED, TransactionOutcome("aborted")])
def test_a_partition_that_was_lost_is_carried_until_the_end_is_known(
    outcome: TransactionOutcome,
) -> None:
    """T6: what the group has committed of it is not what it will be, whoever has it meanwhile."""
    world = world_of(3, 2)
    [carried, other] = [TopicPartition("orders", n) for n in (0, 1)]
    assert not world.engine.is_carried(carried)
    world.finish(world.start(), BOOM)
    [transaction] = world.transactions
    [write] = transaction.writes
    assert world.engine.is_carried(carried)
    assert not world.engine.is_carried(other)
    assert write.partition is not None
    assert world.engine.is_carried(TopicPartition(write.topic, write.partition))
    world.revoke(0, lost=True)
    assert world.engine.is_carried(carried)
    world.end_transaction(outcome)
    assert not world.engine.is_carried(carried)
    # Its next owner, this worker or another, has what was not written.
    assert world.transactions == []


def test_an_engine_without_transactions_carries_nothing() -> None:
    """A write may come twice there: nobody has to wait for its end."""
    world = World()
    world.assign()
    world.read(range(1))
    world.finish(world.start(), BOOM)
    assert not world.engine.is_carried(TopicPartition("orders", 0))


def test_commits_without_an_answer_are_asked_for_before_a_partition_drains() -> None:
    """No poll answers them any more, and parcels wait for that."""
    world = world_of(3, 3)
    world.finish(world.start())
    world.tick(2.0)
    world.finish(next(d for d in world.ready if d.partition == 1), BOOM)
    world.finish(world.start(), BOOM)
    every = [TopicPartition("orders", partition) for partition in range(3)]
    world.engine.stop(every)
    asked = world.engine.unanswered_commits(every)
    assert [p.partition for p in asked] == [0]
    world.engine.committed([(p, None) for p in asked], world.now)
    world.end_transaction()
    assert [p.delivery.partition for p in world.transactions[0].writes] == [0]


def test_an_abort_for_one_lets_the_others_go_again_at_once() -> None:
    """The one at fault waits its backoff, and its topic goes alone until it takes a record."""
    world = world_of(6)
    world.finish(world.start(), BOOM)
    for outcome in (HOPELESS, BOOM, HOPELESS):
        world.finish(world.start(), outcome)
    world.end_transaction()
    (mixed,) = world.transactions
    world.end_transaction(TransactionOutcome("no topic", {mixed.writes[0]: Refusal("no topic")}))
    (others,) = world.transactions
    assert others.writes == (mixed.writes[1],)
    assert [e.offset for e in world.told(PublishFailed)] == [1]
    assert world.subjects() == [f"parking {DLQ}"]
    world.end_transaction()
    (suspect,) = world.transactions
    assert suspect.writes == (mixed.writes[2],)
    world.end_transaction(TransactionOutcome("no topic", {suspect.writes[0]: Refusal("no topic")}))
    world.finish(world.start(), HOPELESS)
    world.finish(world.start(), BOOM)
    world.tick(1.0)
    assert {p.topic for p in world.transactions[0].writes} == {DLQ}
    world.end_transaction()
    assert {p.topic for p in world.transactions[0].writes} <= {DLQ, TIER}
    while world.transactions:
        world.end_transaction()
    world.tick(2.0)
    while world.transactions:
        world.end_transaction()
    assert world.engine.flow.open_count == 0
    assert world.subjects() == []


def test_an_abort_of_the_whole_keeps_everything_open() -> None:
    """A partition moved, say: its records stay, and are tried again after the backoff."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), BOOM)
    world.end_transaction()
    world.end_transaction(TransactionOutcome("illegal generation"))
    assert world.engine.flow.open_count == 1
    assert world.floor() == 1
    assert world.transactions == []
    world.tick(0.3)
    assert offsets(world.transactions[0]) == [1]


def test_a_record_refused_for_its_size_goes_alone_and_then_lighter() -> None:
    """In company it may be the batch that was too large; alone it sheds a header."""
    world = world_of(4)
    big = Failed(Failure("Boom", "x", stack="line\n" * 100))
    world.finish(world.start(), big)
    for _ in range(3):
        world.finish(world.start(), big)
    world.end_transaction()
    (three,) = world.transactions
    world.end_transaction(
        TransactionOutcome("large", {three.writes[1]: Refusal("large", too_large=True)})
    )
    assert world.told(PublishFailed) == []
    sizes: list[int] = []
    while world.transactions:
        (transaction,) = world.transactions
        write = transaction.writes[0]
        if write is not three.writes[1]:
            assert write.delivery.offset != 2
            world.end_transaction()
            continue
        assert len(transaction.writes) == 1
        sizes.append(sum(len(value or b"") for _, value in write.headers))
        refused = TransactionOutcome("large", {write: Refusal("large", too_large=True)})
        world.end_transaction(refused if len(sizes) == 1 else COMMITTED)
    assert sizes[1] < sizes[0]
    assert world.engine.flow.open_count == 0


def test_a_transaction_has_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """By count; the rest goes in the next one."""
    unguarded = HandlerRules("bill", breaker=CircuitBreaker(enabled=False))
    world = world_of(MOST_WRITES + 5, rules=unguarded)
    batch = [world.start() for _ in range(MOST_WRITES + 5)]
    for delivery in batch:
        delivery.outcome = BOOM
    world.engine.answered(batch, world.now)
    world.take()
    assert len(world.transactions[0].writes) == MOST_WRITES
    world.end_transaction()
    assert offsets(world.transactions[0]) == list(range(MOST_WRITES, MOST_WRITES + 5))


def test_a_transaction_has_room_for_so_much() -> None:
    """By bytes; a record that is larger than that goes alone."""
    world = world_of()
    for offset in range(3):
        record = MemoryRecord("orders", 0, offset, b"x" * (MOST_BYTES // 2 + 1))
        world.engine.polled([record], world.now)
    batch = []
    world.take()
    for _ in range(3):
        delivery = world.start()
        delivery.outcome = BOOM
        batch.append(delivery)
    world.engine.answered(batch, world.now)
    world.take()
    for n in range(3):
        assert offsets(world.transactions[0]) == [n]
        world.end_transaction()


def test_a_record_beyond_the_stored_gap_set_waits() -> None:
    """Its park would be repeated after a crash. When the floor is nearer, it goes."""
    world = world_of(30)
    running = [world.start() for _ in range(30)]
    assignment = world.engine.assignments["orders", 0]
    for delivery in running[4:20:2]:
        world.finish(delivery)
    assignment.commit.longest_metadata = 24
    assignment.commit.metadata_gate.limit = 1000
    world.finish(running[28], BOOM)
    assert world.transactions == []
    world.finish(running[2], BOOM)
    assert world.transactions == [], "it looks again after a while only"
    wait(world)
    assert [offsets(t) for t in world.transactions] == [[2]]
    world.end_transaction()
    assert world.transactions == []
    for delivery in running:
        if delivery.outcome is None:
            world.finish(delivery)
    wait(world)
    assert [offsets(t) for t in world.transactions] == [[28]]


def test_where_no_metadata_is_taken_only_the_floor_settles() -> None:
    """A broker that takes none gets floors; a parcel above waits for it."""
    world = world_of(2)
    head, failed = world.start(), world.start()
    world.engine.assignments["orders", 0].commit.limit_metadata(0)
    world.finish(failed, BOOM)
    assert world.transactions == []
    world.finish(head)
    wait(world)
    assert offsets(world.transactions[0]) == [1]


def test_parcels_of_a_dropped_partition_do_not_go() -> None:
    """Its next owner delivers the records again; the others' go on."""
    world = world_of(4, 2)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), BOOM)
    world.finish(next(d for d in world.ready if d.partition == 1), BOOM)
    first = world.transactions[0]
    world.revoke(0, lost=True)
    world.end_transaction(TransactionOutcome("no", {first.writes[0]: Refusal("no")}))
    (second,) = world.transactions
    assert [p.delivery.partition for p in second.writes] == [1]
    world.end_transaction()
    assert world.transactions == []


def test_parcels_without_fault_of_a_dropped_partition_do_not_go_again() -> None:
    """They were under way when it left."""
    world = world_of(3)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), BOOM)
    world.end_transaction()
    (pair,) = world.transactions
    dropped = world.engine.assignments["orders", 0]
    world.revoke(0, lost=True)
    world.end_transaction(TransactionOutcome("no", {pair.writes[0]: Refusal("no")}))
    assert world.transactions == []
    assert dropped.parking == 0


def test_a_transaction_of_the_last_epoch_changes_nothing_in_this_one() -> None:
    """The partition left and came back meanwhile."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    world.revoke(0, lost=True)
    world.engine.assign([StartPosition("orders", 0, 0)], world.now)
    world.take()
    world.end_transaction()
    assignment = world.engine.assignments["orders", 0]
    assert (assignment.commit.position, assignment.commit.outstanding) == (0, False)


def test_a_transaction_that_failed_as_a_whole_is_the_fault_of_no_topic() -> None:
    """The topics that its records were to go to are not blamed for it."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    world.end_transaction(TransactionOutcome("UNKNOWN_TOPIC_OR_PART: Broker: of a commit"))
    (fault,) = world.engine.faults.all()
    assert (fault.kind, fault.subject, fault.records) == ("parking", "transaction", 1)
    world.tick(1.0)
    world.end_transaction()
    assert world.subjects() == []


def test_what_waits_for_its_transaction_is_counted_to_its_topic() -> None:
    """Although nobody has tried to write it: the brokers say that it can't be."""
    world = world_of(3)
    for _ in range(3):
        world.finish(world.start(), BOOM)
    world.engine.troubled({TIER: Trouble("missing", "gone", unwritable=True)}, world.now)
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (TIER, 3)
    world.revoke(lost=True)
    world.engine.troubled({}, world.now)
    assert world.subjects() == []


def test_what_can_not_be_written_holds_up_no_transaction() -> None:
    """What is under way there is given up, and the rest waits until the topic can be written."""
    world = world_of(4)
    for outcome in (BOOM, HOPELESS, BOOM, HOPELESS):
        world.finish(world.start(), outcome)
    gone = Trouble("missing", "gone", unwritable=True)
    (first,) = world.transactions
    assert first.writes[0].topic == TIER
    world.engine.troubled({TIER: gone}, world.now)
    assert first.hopeless == {first.writes[0]: Refusal("gone")}
    world.end_transaction(TransactionOutcome("gone", dict(first.hopeless)))
    (second,) = world.transactions
    assert [p.topic for p in second.writes] == [DLQ, DLQ]
    world.end_transaction()
    world.tick(1.0)
    assert world.transactions == []
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (TIER, 2)
    world.engine.troubled({}, world.now)
    world.take()
    assert [p.topic for p in world.transactions[0].writes] == [TIER, TIER]
    world.end_transaction()
    assert world.subjects() == []


def test_what_comes_for_a_topic_that_can_not_be_written_begins_no_transaction() -> None:
    """Nobody has to try it first."""
    world = world_of(2)
    gone = Trouble("missing", "gone", unwritable=True)
    world.engine.troubled({TIER: gone}, world.now)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), HOPELESS)
    (transaction,) = world.transactions
    assert [p.topic for p in transaction.writes] == [DLQ]


def test_of_a_transaction_that_is_given_up_the_others_go_again() -> None:
    """What comes for the missing topic meanwhile waits from the start."""
    world = world_of(5)
    for outcome in (BOOM, HOPELESS, BOOM):
        world.finish(world.start(), outcome)
    world.end_transaction()
    (mixed,) = world.transactions
    assert [p.topic for p in mixed.writes] == [DLQ, TIER]
    gone = Trouble("missing", "gone", unwritable=True)
    world.engine.troubled({TIER: gone}, world.now)
    assert list(mixed.hopeless) == [mixed.writes[1]]
    world.finish(world.start(), BOOM)
    world.finish(world.start(), HOPELESS)
    world.end_transaction(TransactionOutcome("gone", dict(mixed.hopeless)))
    assert {p.topic for p in world.transactions[0].writes} == {DLQ}
    world.end_transaction()
    assert world.transactions == []
    world.engine.troubled({TIER: gone}, world.now)
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (TIER, 2)


def test_a_transaction_nobody_answers_is_a_fault() -> None:
    """Named after a while, for the commit and for the record, until it ends."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    world.tick(6.0)
    assert world.subjects() == [f"parking {TIER}", "commit orders"]
    world.end_transaction()
    assert world.subjects() == []


def test_the_end_of_another_transaction_is_an_error() -> None:
    """Each is told once."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    transaction = world.end_transaction()
    with pytest.raises(RuntimeError, match="not under way"):
        world.engine.transacted(transaction, COMMITTED, world.now)


def test_the_wait_begins_with_the_writing() -> None:
    """However long a parcel waited for its transaction."""
    world = world_of(2)
    world.finish(world.start(), BOOM)
    world.finish(world.start(), BOOM)
    world.now_s += 30.0
    world.end_transaction()
    write: PendingWrite = world.transactions[0].writes[0]
    assert write.envelope.not_before_ms == world.now.wall_ms + round(write.wait_s * 1000)


def test_a_broker_that_takes_less_metadata_gets_less() -> None:
    """As with plain commits; the parcels go as far as the shorter one settles them."""
    world = world_of(3)
    world.start()
    world.finish(world.start(), BOOM)
    assignment = world.engine.assignments["orders", 0]
    refused = world.transactions[0].positions[0].metadata
    world.end_transaction(TransactionOutcome("OFFSET_METADATA_TOO_LARGE: no"))
    assert assignment.commit.longest_metadata < len(refused)
    world.finish(world.start(), BOOM)
    world.revoke(0, lost=True)
    assert world.transactions == []


def test_a_dropped_partitions_refused_metadata_shortens_nothing() -> None:
    """It has left, and its next owner finds out by itself."""
    world = world_of(1)
    world.finish(world.start(), BOOM)
    world.revoke(0, lost=True)
    world.end_transaction(TransactionOutcome("OFFSET_METADATA_TOO_LARGE: no"))
    assert world.transactions == []


def test_a_commit_in_doubt_is_asked_for_before_a_partition_drains() -> None:
    """Its parcels wait for a clear answer, and nothing else would bring one."""
    world = world_of(2)
    world.finish(world.start())
    world.tick(2.0)
    world.answer_commit("timed out")
    leaving = [TopicPartition("orders", 0)]
    world.engine.stop(leaving)
    assert [p.position for p in world.engine.unanswered_commits(leaving)] == [1]
