"""Outputs of handled records, case by case: with the commit that settles the record, or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor.core.messages.events import (
    DeliveryFailed,
    PublishFailed,
    RecordDeadLettered,
    RecordsAcked,
)
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.outbox import transactional_outbox
from ackfloor.core.outbox.transactional_outbox import MANY, REST_S
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.transaction import Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed
from ackfloor.core.records.output import MOST_OUTPUT_BYTES, Output, OutputTooLarge
from ackfloor.core.records.record import Failure, StartPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.rule_changes import Reloaded
from tests.framework.core.worlds import DLQ, TIER, MemoryRecord, World

BOOM = Failed(Failure("Boom", "x"))
OUT = "invoices"


def world_of(count: int = 0, partitions: int = 1, **rules: object) -> World:
    """A worker whose handler publishes exactly once, and so many records of each partition."""
    world = World(HandlerRules("bill", exactly_once=True, **rules), transactional=True)  # type: ignore[arg-type]
    for partition in range(partitions):
        world.assign(partition)
        if count:
            world.read(range(count), partition)
    return world


def lanes_world(keys: str, **rules: object) -> World:
    """The same in key order: a record for each letter, which is its key."""
    world = world_of(ordering="key", **rules)
    for offset, key in enumerate(keys):
        world.read([offset], key=key.encode())
    return world


def publish(delivery: TrackedDelivery, *topics: str, size: int = 10) -> None:
    """A handler publishes a record to each of these topics."""
    for topic in topics or (OUT,):
        assert delivery.hold(Output(topic, b"k", b"%d" % delivery.offset + b"x" * size))


def handle(world: World, *topics: str, size: int = 10) -> TrackedDelivery:
    """A handler starts, publishes, and returns."""
    delivery = world.start()
    publish(delivery, *topics, size=size)
    world.finish(delivery)
    world.leave(delivery)
    return delivery


def content(transaction: Transaction) -> list[tuple[str, int]]:
    """What a transaction writes: topic, and offset of the record it comes from."""
    return [(write.topic, write.delivery.offset) for write in transaction.writes]


def abort(world: World, topic: str = "", error: str = "no", *, too_large: bool = False) -> None:
    """The transaction under way is aborted: as a whole, or for what goes to one topic."""
    (transaction,) = world.transactions
    refusals = {
        write: Refusal(error, too_large) for write in transaction.writes if write.topic == topic
    }
    assert refusals or not topic
    world.end_transaction(TransactionOutcome(error, refusals))


def test_outputs_go_with_the_commit_that_settles_their_record() -> None:
    """Until that is committed the record is open; then it counts as handled."""
    world = world_of(2)
    handle(world, OUT, "ledger")
    (transaction,) = world.transactions
    assert content(transaction) == [(OUT, 0), ("ledger", 0)]
    assert [write.value for write in transaction.writes] == [b"0" + b"x" * 10] * 2
    assert [write.key for write in transaction.writes] == [b"k", b"k"]
    assert [position.position for position in transaction.positions] == [1]
    assert transaction.queued == transaction.writes[:1]
    assert world.floor() == 0
    assert world.told(RecordsAcked) == []
    world.end_transaction()
    assert world.floor() == 1
    assert [len(event.durations_s) for event in world.told(RecordsAcked)] == [1]
    world.tick(2.0)
    assert world.commits == [], "the transaction's commit was one"


def test_a_record_without_outputs_is_settled_at_once() -> None:
    """It needs no transaction."""
    world = world_of(1)
    world.finish(world.start())
    assert world.floor() == 1
    assert world.transactions == []


@pytest.mark.parametrize("outcome", [BOOM, Discarded("no")])
def test_outputs_of_what_was_not_handled_are_dropped(outcome: Failed | Discarded) -> None:
    """A failed attempt has none, nor has a discarded record."""
    world = world_of(1)
    delivery = world.start()
    publish(delivery)
    world.finish(delivery, outcome)
    assert [topic for t in world.transactions for topic, _ in content(t)] in ([], [TIER])
    while world.transactions:
        world.end_transaction()
    assert world.engine.flow.open_count == world.engine.flow.open_bytes == 0


def test_outputs_of_what_timed_out_are_dropped() -> None:
    """Its late answer changes nothing, and what it publishes then is not taken."""
    world = world_of(1)
    delivery = world.start()
    publish(delivery)
    world.now_s += 61.0
    world.expire(delivery)
    assert not delivery.hold(Output(OUT, None, b"late"))
    world.finish(delivery)
    assert [content(t) for t in world.transactions] == [[(TIER, 0)]]


def test_a_redelivery_begins_without_outputs() -> None:
    """What the first attempt has published is not the second one's."""
    world = world_of(1, in_place=True)
    first = world.start()
    publish(first)
    world.finish(first, BOOM)
    world.tick(2.0)
    second = world.start()
    assert second is not first
    first.reopen()
    for delivery in (first, second):
        assert delivery.outputs is not None
        assert delivery.outputs.items == []


def test_under_manual_ack_what_was_published_before_the_answer_goes_with_it() -> None:
    """What comes after it is refused."""
    world = world_of(1, manual=True)
    delivery = world.start()
    publish(delivery)
    delivery.finished_s = world.now_s
    assert delivery.ack()
    assert not delivery.hold(Output(OUT, None, b"after"))
    world.engine.answered(list(world.inbox), world.now)
    world.take()
    assert [content(t) for t in world.transactions] == [[(OUT, 0)]]


def test_held_outputs_count_in_the_flow_limits() -> None:
    """From when they are taken over until they are written."""
    world = world_of(1)
    assignment = world.engine.assignments["orders", 0]
    handle(world, OUT, "ledger", size=1_000)
    held = world.engine.flow.open_bytes
    assert held == assignment.open_bytes
    assert 2_000 < held < 2_400
    world.end_transaction()
    assert world.engine.flow.open_bytes == assignment.open_bytes == 0


def test_so_many_bytes_of_outputs_stop_fetching() -> None:
    """And let it go on when they are written; here they are of calls that ran already."""
    world = world_of(10)
    first, *others = [world.start() for _ in range(10)]
    publish(first, size=MOST_OUTPUT_BYTES // 2)
    world.finish(first)
    limit = world.limits.partition_open_bytes
    assert not world.engine.assignments["orders", 0].paused
    reloaded = Reloaded((world.rules,), world.limits, 1.0, 10_000)
    assert limit > MOST_OUTPUT_BYTES
    world.engine.reload(reloaded, world.now)
    for delivery in others:
        publish(delivery, size=MOST_OUTPUT_BYTES // 2)
        world.finish(delivery)
    world.read([world.engine.assignments["orders", 0].tracker.position])
    assert world.engine.assignments["orders", 0].paused
    while world.transactions:
        world.end_transaction()
    assert not world.engine.assignments["orders", 0].paused


def test_more_than_a_transaction_may_hold_fails_the_call() -> None:
    """An exception like any other: the policy says what becomes of the record."""
    world = world_of(1)
    delivery = world.start()
    publish(delivery, size=MOST_OUTPUT_BYTES // 2)
    with pytest.raises(OutputTooLarge, match="33,554,432 bytes are the most"):
        publish(delivery, size=MOST_OUTPUT_BYTES // 2)
    with pytest.raises(OutputTooLarge):
        publish(delivery)
    world.finish(delivery, Failed(Failure("OutputTooLarge", "x")))
    assert [content(t) for t in world.transactions] == [[(TIER, 0)]]


def test_a_handler_that_goes_on_after_that_has_failed_all_the_same() -> None:
    """Its record is dead-lettered: nothing of its outputs is missing in silence."""
    world = world_of(1)
    delivery = world.start()
    with pytest.raises(OutputTooLarge):
        publish(delivery, size=MOST_OUTPUT_BYTES)
    world.finish(delivery)
    assert [content(t) for t in world.transactions] == [[(DLQ, 0)]]
    world.end_transaction()
    assert [event.error_type for event in world.told(DeliveryFailed)] == ["OutputTooLarge"]
    assert len(world.told(RecordDeadLettered)) == 1
    assert world.engine.flow.open_count == world.engine.flow.open_bytes == 0


def test_an_abort_writes_the_same_outputs_again() -> None:
    """Without a call of the handler, after a backoff."""
    world = world_of(2)
    handle(world)
    handle(world, "ledger")
    world.end_transaction(TransactionOutcome("illegal generation"))
    assert [content(t) for t in world.transactions] == [[("ledger", 1)]]
    world.end_transaction()
    assert world.engine.next_due_s(world.now) == pytest.approx(world.now_s + 0.25)
    world.tick(0.3)
    assert content(world.transactions[0]) == [(OUT, 0)]
    world.end_transaction()
    assert world.engine.flow.open_count == 0
    assert world.subjects() == []


def test_a_lane_goes_on_while_its_outputs_wait() -> None:
    """Its next record is handled meanwhile, and its outputs are in the next transaction."""
    world = lanes_world("aa")
    handle(world)
    assert [content(t) for t in world.transactions] == [[(OUT, 0)]]
    handle(world)
    world.end_transaction()
    assert [content(t) for t in world.transactions] == [[(OUT, 1)]]


def test_a_lanes_outputs_keep_their_order_when_a_topic_refuses_one() -> None:
    """Those behind it wait with it; those of another lane do not."""
    world = lanes_world("aab", in_place=True)
    other = world.ready.pop()
    handle(world, "forbidden")
    handle(world)
    abort(world, "forbidden")
    assert world.transactions == []
    assert world.subjects() == ["parking forbidden"]
    assert [e.target for e in world.told(PublishFailed)] == ["forbidden"]
    world.ready.append(other)
    handle(world)
    assert [content(t) for t in world.transactions] == [[(OUT, 2)]]
    world.end_transaction()
    world.tick(0.3)
    assert [content(t) for t in world.transactions] == [[("forbidden", 0)]]
    world.end_transaction()
    assert [content(t) for t in world.transactions] == [[(OUT, 1)]]
    world.end_transaction()
    assert world.subjects() == []
    assert world.engine.flow.open_count == 0


def test_a_lanes_outputs_keep_their_order_after_an_abort_for_another() -> None:
    """What did not cause the abort goes first, as it was."""
    world = lanes_world("xaaa", in_place=True)
    handle(world, "ledger")
    for _ in range(3):
        handle(world)
    world.end_transaction()
    assert [content(t) for t in world.transactions] == [[(OUT, 1), (OUT, 2), (OUT, 3)]]
    world.end_transaction(TransactionOutcome("broker away"))
    world.tick(0.3)
    assert [content(t) for t in world.transactions] == [[(OUT, 1), (OUT, 2), (OUT, 3)]]


def test_outputs_to_an_unwritable_topic_hold_up_their_lane_alone() -> None:
    """The brokers say so: nothing is tried until they say otherwise."""
    world = lanes_world("aab", in_place=True)
    trouble = Trouble("authorization", "no write access", unwritable=True)
    world.engine.troubled({"forbidden": trouble}, world.now)
    other = world.ready.pop()
    handle(world, "forbidden")
    handle(world)
    assert world.transactions == []
    world.ready.append(other)
    handle(world)
    assert [content(t) for t in world.transactions] == [[(OUT, 2)]]
    world.end_transaction()
    world.engine.troubled({}, world.now)
    world.take()
    assert [content(t) for t in world.transactions] == [[("forbidden", 0), (OUT, 1)]]


def test_what_waits_for_a_mended_topic_waits_no_longer() -> None:
    """It does not sleep through the rest of its backoff."""
    world = world_of(1)
    handle(world, OUT, "forbidden")
    abort(world, "forbidden")
    trouble = Trouble("authorization", "no write access", unwritable=True)
    world.engine.troubled({"forbidden": trouble}, world.now)
    world.engine.troubled({}, world.now)
    world.take()
    assert [content(t) for t in world.transactions] == [[(OUT, 0), ("forbidden", 0)]]


def test_a_topic_that_is_mended_hurries_no_outputs_of_another() -> None:
    """They keep their backoff."""
    world = world_of(1)
    handle(world, OUT, "forbidden")
    abort(world, "forbidden")
    trouble = Trouble("authorization", "no write access", unwritable=True)
    world.engine.troubled({"elsewhere": trouble}, world.now)
    world.engine.troubled({}, world.now)
    world.take()
    assert world.transactions == []
    world.tick(0.3)
    assert [content(t) for t in world.transactions] == [[(OUT, 0), ("forbidden", 0)]]


def test_unordered_outputs_go_in_the_order_of_settling() -> None:
    """That is the order in which their handlers have returned."""
    world = world_of(4)
    first, second, third, fourth = [world.start() for _ in range(4)]
    for delivery in (first, fourth, third, second):
        publish(delivery)
        world.finish(delivery)
    world.end_transaction()
    assert [content(t) for t in world.transactions] == [[(OUT, 3), (OUT, 2), (OUT, 1)]]


def test_outputs_too_large_for_a_topic_dead_letter_their_record() -> None:
    """In company it may be the batch that was too large; by themselves they are."""
    world = lanes_world("xaa", in_place=True)
    for _ in range(3):
        handle(world)
    world.end_transaction()
    (both,) = world.transactions
    world.end_transaction(
        TransactionOutcome("large", {both.writes[0]: Refusal("large", too_large=True)})
    )
    assert [content(t) for t in world.transactions] == [[(OUT, 1)]]
    abort(world, OUT, "large", too_large=True)
    # Its next owner may publish after all: what is behind it in the lane waits for the dead letter.
    assert [content(t) for t in world.transactions] == [[(DLQ, 1), (OUT, 2)]]
    abort(world, DLQ)
    assert world.transactions == []
    world.tick(0.3)
    assert [content(t) for t in world.transactions] == [[(DLQ, 1)]]
    world.end_transaction()
    assert [content(t) for t in world.transactions] == [[(OUT, 2)]]
    while world.transactions:
        world.end_transaction()
    assert [e.error_type for e in world.told(DeliveryFailed)] == ["OutputTooLarge"]
    assert [e.offset for e in world.told(RecordDeadLettered)] == [1]
    assert world.engine.flow.open_count == world.engine.flow.open_bytes == 0
    assert world.subjects() == []


def test_outputs_that_are_too_large_together_go_one_by_one() -> None:
    """A broker refuses a request as a whole: a record's own outputs may have shared one."""
    world = world_of(1)
    handle(world, OUT, "ledger", OUT)
    (first,) = world.transactions
    assert not first.singly
    abort(world, OUT, "large", too_large=True)
    (alone,) = world.transactions
    assert (alone.singly, content(alone)) == (True, content(first))
    world.end_transaction()
    assert world.floor() == 1
    assert world.told(DeliveryFailed) == []


def test_of_several_refusals_the_size_counts() -> None:
    """What is behind an output that is too large is refused because of it."""
    world = world_of(1)
    handle(world, OUT, "ledger", OUT)
    abort(world, OUT, "large", too_large=True)
    (alone,) = world.transactions
    order, large = Refusal("out of order"), Refusal("large", too_large=True)
    refusals = dict(zip(alone.writes, (order, large, order), strict=True))
    world.end_transaction(TransactionOutcome("out of order", refusals))
    assert [content(t) for t in world.transactions] == [[(DLQ, 0)]]
    transactions = world.engine._outbox.transactions
    assert transactions is not None
    assert not transactions._oversized, "its bytes are not kept"
    world.end_transaction()
    assert [e.error_type for e in world.told(DeliveryFailed)] == ["OutputTooLarge"]
    assert world.engine.flow.open_count == world.engine.flow.open_bytes == 0


def test_a_thread_that_publishes_when_its_record_is_handled_changes_nothing() -> None:
    """Also where it is too much: what was held at the handler's end is written."""
    world = world_of(1)
    delivery = world.start()
    publish(delivery)
    outputs = delivery.outputs
    assert outputs is not None
    late = [*outputs.items]

    class Emptied(list[Output]):
        """A list that another thread empties as soon as it was looked at."""

        def __iter__(self) -> Iterator[Output]:
            yield from late
            outputs.too_large = ""
            outputs.items = []

    outputs.items = Emptied(late)
    world.finish(delivery)
    assert [content(t) for t in world.transactions] == [[(OUT, 0)]]


def test_a_delivery_that_is_closed_for_a_moment_keeps_what_it_publishes() -> None:
    """Its deadline is being moved: it is opened again, and is handled."""
    world = world_of(1)
    delivery = world.start()
    delivery.closed = True
    assert not delivery.hold(Output(OUT, None, b"x"))
    delivery.closed = False
    world.finish(delivery)
    assert [content(t) for t in world.transactions] == [[(OUT, 0)]]


@pytest.mark.parametrize("of_a_lane", [True, False])
def test_a_lane_keeps_its_order_where_a_commit_can_not_settle_a_record_yet(
    monkeypatch: pytest.MonkeyPatch, *, of_a_lane: bool
) -> None:
    """T3 and T7: what is behind it in another partition of the lane waits, also in the commit."""
    lane = ("orders", 0, b"k") if of_a_lane else None
    monkeypatch.setattr(transactional_outbox, "lane_of", lambda _: lane)
    world = world_of(30, 2)
    running = [world.start() for _ in range(60)]
    assignment = world.engine.assignments["orders", 0]
    for delivery in running[4:20:2]:
        world.finish(delivery)
    assignment.commit.longest_metadata = 24
    assignment.commit.metadata_gate.limit = 1_000
    answered = [running[28], running[30]]
    for delivery in answered:
        publish(delivery)
        delivery.outcome = ACKED
    world.engine.answered(answered, world.now)
    world.take()
    found = [(content(t), [p.partition for p in t.positions]) for t in world.transactions]
    assert found == ([] if of_a_lane else [([(OUT, 0)], [1])])


def test_outputs_of_a_partition_that_left_are_dropped() -> None:
    """Its next owner handles their records; those under way may be committed all the same."""
    world = world_of(3)
    handle(world)
    handle(world)
    world.engine.stop([TopicPartition("orders", 0)])
    world.engine.drop([TopicPartition("orders", 0)], lost=True)
    world.end_transaction()
    assert world.transactions == []
    assert world.engine.flow.open_count == world.engine.flow.open_bytes == 0


def test_a_partition_that_drains_waits_for_its_outputs() -> None:
    """They are among what is on its way."""
    world = world_of(2)
    handle(world)
    handle(world)
    assignment = world.engine.assignments["orders", 0]
    world.engine.stop([TopicPartition("orders", 0)])
    assert assignment.parking == 2
    world.end_transaction()
    assert assignment.parking == 1
    world.end_transaction()
    assert assignment.parking == 0
    assert world.revoke() == ()


def test_outputs_are_never_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose outputs do not fit goes in the next transaction, by itself if need be."""
    monkeypatch.setattr(transactional_outbox, "MOST_WRITES", 3)
    world = world_of(4)
    for count in (1, 2, 2, 5):
        handle(world, *[OUT] * count)
    sizes = []
    while world.transactions:
        sizes.append(len(world.end_transaction().writes))
    assert sizes == [1, 2, 2, 5]


def test_a_transaction_has_room_for_the_commits_of_so_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T8; the others go in the next one."""
    monkeypatch.setattr(transactional_outbox, "MOST_PARTITIONS", 2)
    world = world_of(2, 4)
    running = [world.start() for _ in range(8)]
    for delivery in running:
        publish(delivery)
        world.finish(delivery)
    world.end_transaction()
    counts = []
    while world.transactions:
        transaction = world.end_transaction()
        counts.append((len(transaction.writes), len(transaction.positions)))
    assert counts == [(3, 2), (4, 2)]


def test_many_that_may_not_go_are_not_looked_at_all_the_time() -> None:
    """Each look costs as much as there are."""
    world = world_of(MANY + 2)
    running = [world.start() for _ in range(MANY + 2)]
    for delivery in running:
        publish(delivery, "forbidden")
        delivery.outcome = ACKED
    trouble = Trouble("authorization", "no write access", unwritable=True)
    world.engine.troubled({"forbidden": trouble}, world.now)
    world.engine.answered(running, world.now)
    world.take()
    world.engine.troubled({}, world.now)
    world.take()
    assert world.transactions == []
    world.tick(REST_S)
    assert len(world.transactions) == 1


def test_outputs_need_an_outbox_with_transactions() -> None:
    """Otherwise they could be there twice."""
    world = World(HandlerRules("bill", exactly_once=True), transactional=False)
    world.assign()
    world.read([0])
    delivery = world.start()
    publish(delivery)
    with pytest.raises(RuntimeError, match="in transactions"):
        world.finish(delivery)


def test_an_output_to_a_partition_that_is_read_here_holds_up_no_reading() -> None:
    """Only what holds the key of a dead letter does."""
    world = world_of(1)
    delivery = world.start()
    delivery.hold(Output("x", None, b"1"))
    delivery.hold(Output(TIER, None, b"1", (), 0))
    world.finish(delivery)
    world.engine.assign([StartPosition(TIER, 0, 0)], world.now)
    world.redeliver([0])
    assert len(world.ready) == 1


def test_outputs_are_a_write_of_their_own() -> None:
    """Key, value and size are the output's, and not the record's."""
    world = world_of()
    world.engine.polled([MemoryRecord("orders", 0, 0, b"in", b"inkey")], world.now)
    world.take()
    handle(world)
    (write,) = world.transactions[0].writes
    assert isinstance(write, OutputWrite)
    assert (write.key, write.value) == (b"k", b"0" + b"x" * 10)
    assert write.size == write.held == write.output.size
