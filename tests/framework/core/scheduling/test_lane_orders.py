"""Blocked lanes: what a snapshot says of them, and what an operator's word does to them."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import RecordDeadLettered, RecordDiscarded
from ackfloor.core.messages.lane_order import TOO_MANY, Action, LaneAnswer, LaneOrder, Place
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import TransactionOutcome
from ackfloor.core.records.envelope import Envelope, Reason
from ackfloor.core.records.outcomes import ACKED, Failed, Rejected
from ackfloor.core.records.record import Failure
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling import lane_orders
from ackfloor.core.scheduling.blocked_lanes import MOST_SHOWN, blocked_lanes, last_outcome
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.snapshot import BlockedLane, BlockedLanes
from tests.framework.core.worlds import DLQ, START_MS, TIER, HeldWorld, MemoryRecord

POLICY = RetryPolicy(delays=["10s", "20s"], jitter=0)
BLOCKING = HandlerRules("bill", "key", in_place=True, policy=POLICY)
PARKING = HandlerRules(
    "bill",
    "key",
    policy=RetryPolicy(delays=["1s"], jitter=0),
    breaker=CircuitBreaker(park_rate="36/h"),
)
BOOM = Failed(Failure("shop.Boom", "no stock for 4711\nsecond line"))


class Lanes(HeldWorld):
    """Keys a, b and c have three records each, at offsets 0 to 8, in turns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.assign()
        keys = [b"a", b"b", b"c"]
        records = [MemoryRecord("orders", 0, n, _key=keys[n % 3]) for n in range(9)]
        self.engine.polled(records, self.now)
        self.take()

    def blocks(self, *keys: bytes) -> None:
        """The next record of each of these keys fails."""
        started = [self.start() for _ in range(3)]
        for delivery in started:
            self.finish(delivery, BOOM) if delivery.key in keys else None
        for delivery in started:
            if delivery.key not in keys:
                self.finish(delivery)
            self.leave(delivery)

    def trial(self) -> TrackedDelivery:
        """The next that an open breaker lets start."""
        self.tick(5)
        return self.start()

    def does(self, action: Action, *wanted: bytes | Place, **more: object) -> LaneAnswer:
        """An operator wants something done."""
        order = replace(LaneOrder(action, "bill", tuple(wanted)), **more)
        answer = self.engine.lane_orders.carry_out(order, self.now)
        self.take()
        return answer

    @property
    def blocked(self) -> BlockedLanes:
        """What a snapshot says."""
        return blocked_lanes(self.engine.state.handlers["bill"], self.engine.state, self.now)

    def offsets_started(self) -> list[int]:
        """All that may start, one after the other, handled."""
        offsets = []
        while self.startable():
            delivery = self.start()
            offsets.append(delivery.record_offset)
            self.finish(delivery)
            self.leave(delivery)
        return offsets


@pytest.fixture
def lanes() -> Lanes:
    """A handler that blocks; keys a and b are blocked, c is done."""
    lanes = Lanes(BLOCKING)
    lanes.blocks(b"a", b"b")
    assert lanes.offsets_started() == [5, 8]
    return lanes


def test_what_is_shown_of_a_blocked_lane(lanes: Lanes) -> None:
    """Which record, what it failed with, when it is tried next, and how many wait behind it."""
    lanes.now_s += 4
    assert lanes.blocked.count == 2
    assert lanes.blocked.behind == 4
    assert lanes.blocked.since_ms == START_MS
    first = BlockedLane(
        topic="orders",
        partition=0,
        offset=0,
        key="a",
        head="waiting",
        attempt=1,
        error="shop.Boom: no stock for 4711",
        since_ms=START_MS,
        next_try_ms=START_MS + 10_000,
        behind=2,
    )
    assert lanes.blocked.oldest == (first, replace(first, offset=1, key="b"))


def test_the_time_of_the_first_failure_and_the_last_error_are_shown(lanes: Lanes) -> None:
    """A lane that fails again is blocked since its first failure."""
    lanes.tick(10)
    again = lanes.start()
    assert [each.head for each in lanes.blocked.oldest] == ["running", "queued"]
    assert lanes.blocked.oldest[0].next_try_ms is None
    lanes.now_s += 1
    lanes.finish(again, Failed(Failure("shop.Late", "x"), Reason.TIMEOUT))
    first = lanes.blocked.oldest[0]
    assert (first.attempt, first.error, first.since_ms) == (2, "shop.Late: x", START_MS)
    assert (first.head, first.next_try_ms) == ("waiting", START_MS + 31_000)
    assert first.behind == 2


def test_a_lane_is_blocked_until_its_head_is_settled(lanes: Lanes) -> None:
    """When the head is handled, nothing of it is shown any more."""
    lanes.tick(10)
    assert lanes.offsets_started() == [0, 1, 3, 4, 6, 7]
    assert lanes.blocked == BlockedLanes()
    assert lanes.floor() == 9


def test_keys_and_errors_are_shown_as_far_as_they_may_be() -> None:
    """What `[redaction]` takes away is not shown here either."""
    lanes = Lanes(BLOCKING)
    lanes.engine.state._redaction = Redaction(key="hash", patterns=(r"\d{4}",))
    lanes.blocks(b"a")
    [only] = lanes.blocked.oldest
    assert only.key == "ca978112ca1bbdca"
    assert only.error == "shop.Boom: no stock for ***"


def test_the_oldest_are_shown_and_all_are_counted() -> None:
    """A snapshot stays small."""
    lanes = Lanes(replace(BLOCKING, concurrency=200))
    records = [MemoryRecord("orders", 0, n, _key=b"%d" % n) for n in range(9, 9 + 30)]
    lanes.engine.polled(records, lanes.now)
    lanes.take()
    while lanes.startable():
        lanes.now_s += 1
        delivery = lanes.start()
        lanes.finish(delivery, BOOM)
        lanes.leave(delivery)
    assert lanes.blocked.count == 33
    assert [each.offset for each in lanes.blocked.oldest][:4] == [0, 1, 2, 9]
    assert len(lanes.blocked.oldest) == MOST_SHOWN


def test_the_head_of_a_lane_is_tried_now(lanes: Lanes) -> None:
    """The lane that is meant, and no other; the attempt counts on."""
    answer = lanes.does(Action.RETRY, b"b", b"nobody")
    assert (answer.done, answer.left, answer.found) == (1, {}, {0})
    lanes.tick()
    delivery = lanes.start()
    assert (delivery.record_offset, delivery.attempt) == (1, 2)
    lanes.finish(delivery)
    lanes.leave(delivery)
    assert lanes.offsets_started() == [4, 7]
    assert lanes.floor() == 0


def test_all_lanes_of_a_handler_are_tried_now(lanes: Lanes) -> None:
    """No key and no place: all of them."""
    assert lanes.does(Action.RETRY).done == 2
    lanes.tick()
    assert lanes.offsets_started() == [0, 1, 3, 4, 6, 7]


def test_a_wait_under_way_is_changed(lanes: Lanes) -> None:
    """Longer or shorter; what waits for something else keeps its time."""
    assert lanes.does(Action.DELAY, ("orders", 0, 0), delay_s=60.0).done == 1
    assert lanes.does(Action.DELAY, b"b", delay_s=2.0).done == 1
    assert [each.next_try_ms - START_MS for each in lanes.blocked.oldest if each.next_try_ms] == [
        60_000,
        2_000,
    ]
    lanes.tick(2)
    assert lanes.offsets_started() == [1, 4, 7]
    lanes.tick(57)
    assert lanes.offsets_started() == []
    lanes.tick(1)
    assert lanes.offsets_started() == [0, 3, 6]


def test_a_dead_lettered_head_holds_its_lane_until_it_is_confirmed(lanes: Lanes) -> None:
    """Late rather than out of order; refused, it stays where it is."""
    assert lanes.does(Action.DEAD_LETTER, b"a").done == 1
    [write] = lanes.writes
    assert (write.topic, write.envelope.reason) == (DLQ, Reason.DEAD_LETTER)
    assert (write.envelope.attempt, write.envelope.error_type) == (1, "shop.Boom")
    first = lanes.blocked.oldest[0]
    assert (first.head, first.next_try_ms, first.behind) == ("dead_lettering", None, 2)
    assert first.error == "shop.Boom: no stock for 4711"
    lanes.refuse()
    lanes.tick(5)
    assert lanes.offsets_started() == []
    assert lanes.does(Action.RETRY, b"a").left == {"dead_lettering": 1}
    lanes.confirm()
    assert lanes.offsets_started() == [3, 6]
    assert lanes.floor() == 1
    [event] = lanes.told(RecordDeadLettered)
    assert (event.offset, event.reason, event.by_operator) == (0, Reason.DEAD_LETTER, True)


def test_a_discarded_head_is_settled_and_its_lane_goes_on(lanes: Lanes) -> None:
    """Nothing is written; the reason is in the log."""
    assert lanes.does(Action.DISCARD, ("orders", 0, 0), reason="a test order").done == 1
    assert lanes.writes == []
    assert lanes.floor() == 1
    assert lanes.offsets_started() == [3, 6]
    [event] = lanes.told(RecordDiscarded)
    assert (event.offset, event.reason) == (0, "a test order")
    assert (event.read_from, event.by_operator) == ("orders", True)
    assert lanes.engine.flow.open_count == 3


def test_a_trial_run_changes_nothing(lanes: Lanes) -> None:
    """It says how many it would be."""
    before = lanes.blocked
    for action in (Action.RETRY, Action.DELAY, Action.DEAD_LETTER, Action.DISCARD):
        assert lanes.does(action, dry_run=True).done == 2
    assert (lanes.blocked, lanes.writes, lanes.floor()) == (before, [], 0)


@pytest.mark.parametrize("action", [Action.RETRY, Action.DELAY, Action.DEAD_LETTER, Action.DISCARD])
def test_what_runs_is_left_as_it_is(lanes: Lanes, action: Action) -> None:
    """Its handler may be about to end it, one way or the other."""
    lanes.tick(10)
    running = lanes.start()
    answer = lanes.does(action)
    assert (answer.done, answer.left) == (0, {"running": 1, "queued": 1})
    assert not running.closed
    assert lanes.writes == []
    lanes.finish(running)
    lanes.leave(running)
    assert lanes.offsets_started() == [1, 3, 4, 6, 7]


def test_what_is_leaving_is_left_to_its_next_owner(lanes: Lanes) -> None:
    """Its records stay open, and are delivered again there."""
    lanes.engine.assignments["orders", 0].stopping = True
    assert lanes.does(Action.DISCARD) == LaneAnswer()


def test_an_order_that_can_not_be_done_is_refused(lanes: Lanes) -> None:
    """With the reason; nothing was done."""
    assert "on_failure='block'" in lanes.does(Action.PARK).refused
    answer = lanes.does(Action.PARK, b"nobody", b"b")
    assert (answer.done, answer.found) == (0, {1}), "what is refused is not missing"
    order = LaneOrder(Action.RETRY, "nobody")
    assert lanes.engine.lane_orders.carry_out(order, lanes.now).refused == (
        "HANDLER='nobody': no handler of this worker; there is bill; write the name of one of them"
    )
    assert lanes.blocked.count == 2


# Lanes that wait because a circuit breaker withholds their heads.


@pytest.fixture
def withheld() -> Lanes:
    """A handler that parks; its breaker is open, and withholds the heads of a and b."""
    lanes = Lanes(PARKING)
    started = [lanes.start() for _ in range(3)]
    lanes.engine.force("bill", Forced.OPEN, inf, "", lanes.now)
    bucket = lanes.engine.state.handlers["bill"].circuit.bucket
    while bucket.take(0.01, 1.0, lanes.now_s):
        pass
    for delivery in started:
        lanes.finish(delivery, ACKED if delivery.key == b"c" else BOOM)
        lanes.leave(delivery)
    assert len(in_withheld(lanes)) == 2
    return lanes


def in_withheld(lanes: Lanes) -> list[BlockedLane]:
    """Of the blocked lanes those whose head is withheld."""
    return [each for each in lanes.blocked.oldest if each.head == "withheld"]


def test_a_withheld_head_is_shown_with_its_last_error(withheld: Lanes) -> None:
    """Nothing was written for it, so the record itself says nothing."""
    [each, _] = in_withheld(withheld)
    assert (each.attempt, each.error) == (1, "shop.Boom: no stock for 4711")
    assert each.since_ms == START_MS
    assert each.next_try_ms == START_MS + 1_000


def test_a_withheld_head_waits_for_its_trial(withheld: Lanes) -> None:
    """When one may start is for the breaker to say."""
    assert withheld.does(Action.RETRY).left == {"withheld": 2}
    assert withheld.does(Action.DELAY, delay_s=9.0).left == {"withheld": 2}


@pytest.mark.parametrize(
    ("action", "topic", "reason"),
    [(Action.PARK, TIER, Reason.ERROR), (Action.DEAD_LETTER, DLQ, Reason.DEAD_LETTER)],
)
def test_a_withheld_head_leaves(
    withheld: Lanes, action: Action, topic: str, reason: Reason
) -> None:
    """With the failure it had, as if no breaker were in the way."""
    assert withheld.does(action).done == 2
    writes: list[PendingWrite] = list(withheld.writes)
    assert len(writes) == 2
    write = writes[0]
    assert (write.topic, write.envelope.reason) == (topic, reason)
    assert (write.envelope.attempt, write.envelope.failures) == (1, 1)
    assert write.envelope.error_message == BOOM.failure.message
    for _ in writes:
        withheld.confirm()
    assert withheld.engine.state.withheld(withheld.engine.state.handlers["bill"]) == 0
    assert withheld.blocked == BlockedLanes()
    assert all(event.by_operator for event in withheld.told(RecordDeadLettered))


def test_a_withheld_head_without_an_attempt_left_is_not_parked(withheld: Lanes) -> None:
    """It would have one more than its policy gives it; it may be dead-lettered."""
    for assignment in withheld.engine.assignments.values():
        for head in assignment.waiting:
            head.envelope = Envelope(attempt=99)
    answer = withheld.does(Action.PARK)
    assert (answer.done, answer.left, withheld.writes) == (0, {"exhausted": 2}, [])
    assert withheld.does(Action.DEAD_LETTER).done == 2


def test_a_withheld_head_is_discarded(withheld: Lanes) -> None:
    """And forgotten: nothing of it counts as withheld."""
    assert withheld.does(Action.DISCARD, reason="old").done == 2
    assert withheld.engine.assignments["orders", 0].withheld.trials == {}
    assert withheld.blocked == BlockedLanes()


def test_a_head_that_follows_its_policy_again_is_known_by_its_newest_failure() -> None:
    """Withheld once, it failed in place since: that failure is shown, and dead-lettered."""
    lanes = Lanes(replace(BLOCKING, breaker=CircuitBreaker(park_rate="36/h")))
    lanes.engine.force("bill", Forced.OPEN, inf, "", lanes.now)
    bucket = lanes.engine.state.handlers["bill"].circuit.bucket
    while bucket.take(0.01, 1.0, lanes.now_s):
        pass
    first = lanes.trial()
    lanes.finish(first, Rejected(Failure("shop.Wrong", "by its own word")))
    lanes.leave(first)
    assert [each.head for each in lanes.blocked.oldest] == ["withheld"]
    lanes.engine.force("bill", Forced.CLOSED, inf, "", lanes.now)
    lanes.tick(10)
    started = [lanes.start() for _ in range(3)]
    [again] = [each for each in started if each.record_offset == first.record_offset]
    lanes.finish(again, BOOM)
    lanes.leave(again)
    [shown] = [each for each in lanes.blocked.oldest if each.offset == first.record_offset]
    assert (shown.head, shown.attempt) == ("waiting", 1)
    assert shown.error == "shop.Boom: no stock for 4711"
    lanes.does(Action.DEAD_LETTER, ("orders", 0, first.record_offset))
    [write] = lanes.writes
    assert (write.envelope.attempt, write.envelope.error_type) == (1, "shop.Boom")


def test_an_order_begins_only_so_many_writes(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner thread has other work; the rest is left, and said to be."""
    monkeypatch.setattr(lane_orders, "MOST_WRITES", 1)
    assert lanes.does(Action.DEAD_LETTER, dry_run=True).left == {TOO_MANY: 1}
    answer = lanes.does(Action.DEAD_LETTER)
    assert (answer.done, answer.left) == (1, {TOO_MANY: 1})
    answer = lanes.does(Action.DEAD_LETTER)
    assert (answer.done, answer.left) == (1, {"dead_lettering": 1})
    assert len(lanes.writes) == 2


def test_a_head_that_is_retried_in_a_retry_topic_and_buried_is_not_moved(lanes: Lanes) -> None:
    """`retry bury` writes it already; what is behind it starts when that is confirmed."""
    assert lanes.engine.promotions.bury("orders", {0: [0]}, lanes.now) == 1
    assert lanes.does(Action.RETRY, b"a", dry_run=True).left == {"dead_lettering": 1}
    answer = lanes.does(Action.DISCARD, b"a")
    assert (answer.done, answer.left) == (0, {"dead_lettering": 1})
    lanes.take()
    lanes.confirm()
    assert lanes.offsets_started() == [3, 6]


def test_what_a_snapshot_looks_at_does_not_grow_with_the_lanes() -> None:
    """It is made twice a second: with as many more blocked lanes it takes no more steps."""

    def steps(blocked: int) -> int:
        lanes = Lanes(replace(BLOCKING, concurrency=1_000, breaker=CircuitBreaker(enabled=False)))
        records = [MemoryRecord("orders", 0, n, _key=b"%d" % n) for n in range(9, 9 + blocked)]
        lanes.engine.polled(records, lanes.now)
        while lanes.startable():
            delivery = lanes.start()
            lanes.finish(delivery, BOOM)
            lanes.leave(delivery)
        counted: list[str] = []
        sys.setprofile(lambda _frame, event, _arg: counted.append(event))
        try:
            assert lanes.blocked.count == blocked + 3
        finally:
            sys.setprofile(None)
        return len(counted)

    few, many = steps(50), steps(200)
    # Not a step for each of the 150 more; a few are Python's own (a collection of garbage).
    assert many - few < 100


def test_a_head_in_a_transaction_holds_its_lane_until_it_is_committed() -> None:
    """Aborted, it is written again; moved meanwhile it is not."""
    lanes = Lanes(BLOCKING, transactional=True)
    lanes.blocks(b"a")
    lanes.offsets_started()
    assert lanes.does(Action.DEAD_LETTER).done == 1
    lanes.engine.transact(lanes.now)
    lanes.take()
    assert lanes.does(Action.DISCARD).left == {"dead_lettering": 1}
    lanes.end_transaction(TransactionOutcome("fenced"))
    assert lanes.offsets_started() == []
    assert lanes.does(Action.RETRY).left == {"dead_lettering": 1}
    lanes.tick(10)
    while lanes.commits:
        # A partition whose commit is under way waits for it.
        lanes.answer_commit()
    lanes.take()
    lanes.end_transaction()
    assert lanes.offsets_started() == [3, 6]
    assert lanes.floor() == 9


def test_a_head_that_has_just_been_settled_blocks_nothing(lanes: Lanes) -> None:
    """Between its settling and the next look at its lane."""
    for lane in lanes.engine.state.handlers["bill"].lanes.blocked.values():
        lane.head = None
    assert lanes.blocked == BlockedLanes()


def test_a_head_without_an_error_outlived_its_timeout(lanes: Lanes) -> None:
    """Nothing else ends a first delivery without an outcome."""
    lanes.read([9], key=b"d")
    outcome = last_outcome(lanes.start())
    assert (outcome.reason, outcome.failure.error_type) == (Reason.TIMEOUT, "ConsumeTimeout")


def test_a_head_that_no_longer_waits_is_not_counted_as_moved(lanes: Lanes) -> None:
    """It is on its way already."""
    lanes.engine.assignments["orders", 0].waiting.clear()
    answer = lanes.does(Action.RETRY)
    assert (answer.done, answer.left) == (0, {"dead_lettering": 2})


def test_a_head_without_headers_of_ours_waits_as_well(lanes: Lanes) -> None:
    """What is withheld at its first attempt has none."""
    lanes.read([9], key=b"d")
    head = lanes.start()
    lanes.engine.lane_orders._wait(head, lanes.now_s + 5, lanes.now)
    waiting = lanes.engine.assignments["orders", 0].waiting
    assert (head in list(waiting), waiting.next_s) == (True, lanes.now_s + 5)


def test_only_a_record_that_is_alone_in_its_lane_is_withdrawn(lanes: Lanes) -> None:
    """What is behind it, or an executor's, keeps it there."""
    handler = lanes.engine.state.handlers["bill"]
    [lane, other] = handler.lanes.blocked.values()
    assert not handler.lanes.withdraw(lane[0])
    lanes.read([9], key=b"d")
    started = lanes.start()
    started.lane = ("orders", 0, b"nobody's")
    assert not handler.lanes.withdraw(started)
    handler.queue.put([lane, other])
    assert not handler.queue.withdraw(other[0])


def test_a_head_in_a_retry_topic_is_found_by_its_origin_as_well() -> None:
    """A quarantined key is shown by it; when its head is withheld, it blocks its lane there."""
    lanes = Lanes(BLOCKING)
    lanes.blocks()
    lanes.offsets_started()
    lanes.assign(topic=TIER)
    origin = {"topic": b"orders", "partition": b"0", "offset": b"77"}
    headers = [(f"ackfloor.origin.{name}", value) for name, value in origin.items()]
    lanes.redeliver([4], key=b"z", headers=headers)
    lanes.finish(lanes.start(), BOOM)
    dry = lanes.does(Action.RETRY, ("orders", 0, 77), (TIER, 0, 4), dry_run=True)
    assert (dry.done, dry.found) == (1, {0, 1})
