"""TrackedDelivery: what a handler is given, its deadline, and that it is answered once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from ackfloor.core.messages.events import LateAnswers
from ackfloor.core.records.envelope import Envelope, Reason
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome, Rejected
from ackfloor.core.records.record import Failure, Origin, StartPosition
from ackfloor.core.records.tracked_delivery import TrackedDelivery, first_deliveries
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.values.setting_error import SettingError
from ackfloor.delivery import Delivery
from tests.framework.core.worlds import START_MS, TIER, MemoryRecord, World, tier_record

AUTO = HandlerRules("bill", consume_timeout_s=10.0)
MANUAL = HandlerRules("bill", consume_timeout_s=10.0, manual=True)


def started(rules: HandlerRules = AUTO) -> tuple[World, TrackedDelivery]:
    """A world with one running delivery."""
    world = World(rules)
    world.assign()
    world.read([7])
    return world, world.start()


def test_a_handler_reads_the_record_through_it() -> None:
    """Key, value and headers are the record's bytes; the rest says where and when it was."""
    world = World()
    world.assign(3)
    headers = [("trace", b"\xff"), ("trace", None)]
    world.engine.polled([MemoryRecord("orders", 3, 9, b"v", b"k", headers)], world.now)
    world.take()
    delivery = world.start()
    assert (delivery.topic, delivery.partition, delivery.offset) == ("orders", 3, 9)
    assert (delivery.key, delivery.value, delivery.headers) == (b"k", b"v", headers)
    assert (delivery.timestamp, delivery.attempt) == (START_MS, 1)
    assert delivery.origin == Origin("orders", 3, 9)
    assert repr(delivery) == "<Delivery orders/3/9 attempt 1>"
    assert isinstance(delivery, Delivery), "users rely on the members that it names"


@pytest.mark.parametrize(
    ("epoch", "key"), [(None, "id/0/9"), (-1, "id/0/9"), (0, "id/0/9"), (3, "id/0/9@3")]
)
def test_the_key_tells_records_apart_that_had_one_place(epoch: int | None, key: str) -> None:
    """An unclean election cuts records off, and a later leader gives their offsets to others."""
    world = World()
    world.engine.assign([StartPosition("orders", 0, 9, topic_id="id")], world.now)
    world.engine.polled([MemoryRecord("orders", 0, 9, _leader_epoch=epoch)], world.now)
    world.take()
    assert world.start().idempotency_key == key


def test_no_headers_are_an_empty_sequence() -> None:
    """A handler may loop over the headers of any record."""
    _, delivery = started()
    assert list(delivery.headers) == []


def test_a_redelivery_knows_its_attempt_and_its_origin() -> None:
    """Both come from the headers the record was parked with."""
    world = World()
    world.assign(topic=TIER)
    record = tier_record(TIER, 0, 4, START_MS)
    origin = [("ackfloor.origin.topic", b"orders"), ("ackfloor.origin.partition", b"3")]
    record._headers = [*(record._headers or ()), *origin, ("ackfloor.origin.offset", b"99")]
    world.engine.polled([record], world.now)
    world.take()
    delivery = world.start()
    assert (delivery.topic, delivery.offset, delivery.attempt) == (TIER, 4, 2)
    assert delivery.origin == Origin("orders", 3, 99)


def test_an_origin_in_fragments_is_completed() -> None:
    """Damaged origin headers give a place all the same."""
    _, delivery = started()
    delivery.envelope = Envelope(origin_topic="orders")
    assert delivery.origin == Origin("orders", 0, 0)
    delivery.envelope = Envelope(origin_offset=5)
    assert delivery.origin == Origin("orders", 0, 7)


def test_the_deadline_runs_from_the_handlers_start() -> None:
    """A record that waits in a queue has none."""
    world = World(AUTO)
    world.assign()
    world.read([0])
    waiting = world.ready[0]
    assert isinstance(waiting, TrackedDelivery)
    assert waiting.deadline_s is None
    world.now_s += 100
    assert world.start().deadline_s == world.now_s + 10


def test_without_a_consume_timeout_there_is_no_deadline() -> None:
    """None is for ever."""
    _, delivery = started(HandlerRules("bill", consume_timeout_s=None))
    assert delivery.deadline_s is None


def test_an_extension_counts_from_now() -> None:
    """What was left of the deadline is not added to it."""
    world, delivery = started()
    world.now_s += 4
    assert delivery.extend(timedelta(seconds=10)) is True
    assert delivery.deadline_s == world.now_s + 10


def test_an_extension_never_shortens() -> None:
    """Less than what is left, from the start or from an earlier extension, changes nothing."""
    world, delivery = started()
    assert delivery.extend("3s") is True
    assert delivery.deadline_s == world.now_s + 10
    delivery.extend("1m")
    delivery.extend("20s")
    assert delivery.deadline_s == world.now_s + 60


def test_extensions_end_at_max_extend_after_the_start() -> None:
    """However often and by however much it is asked for."""
    world, delivery = started(HandlerRules("bill", consume_timeout_s=10.0, max_extend_s=25.0))
    start_s = world.now_s
    for _ in range(5):
        world.now_s += 4
        delivery.extend("1h")
    assert delivery.deadline_s == start_s + 25


def test_what_has_ended_is_not_extended() -> None:
    """Neither after an answer nor after the end."""
    _, answered = started(MANUAL)
    answered.ack()
    assert answered.extend("1m") is False
    world, ended = started()
    world.finish(ended)
    assert ended.extend("1m") is False


def test_an_extension_needs_a_unit() -> None:
    """A bare number is refused where it is given."""
    _, delivery = started()
    with pytest.raises(SettingError, match=r"^by='30': a bare number has no unit"):
        delivery.extend("30")


def test_each_answer_records_its_outcome() -> None:
    """Ack, retry, dead letter and discard, with their reasons."""
    answers: list[tuple[Callable[[TrackedDelivery], bool], Outcome]] = [
        (lambda d: d.ack(), ACKED),
        (lambda d: d.retry(), Failed(Failure("Retry", ""), Reason.RETRY)),
        (
            lambda d: d.retry(after="5s", reason="busy"),
            Failed(Failure("Retry", "busy"), Reason.RETRY, 5.0),
        ),
        (lambda d: d.dead_letter("bad"), Rejected(Failure("DeadLetter", "bad"))),
        (lambda d: d.discard("test order"), Discarded("test order")),
    ]
    for answer, outcome in answers:
        world, delivery = started(MANUAL)
        assert answer(delivery) is True
        assert delivery.outcome == outcome
        assert list(world.inbox) == [delivery]


def test_a_second_answer_is_stale() -> None:
    """The first one counts, whatever the second says; it is told once."""
    world, delivery = started(MANUAL)
    assert delivery.ack() is True
    assert delivery.dead_letter("no") is False
    assert delivery.ack() is False
    assert delivery.outcome is ACKED
    assert len(world.inbox) == 1
    world.take()
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 2)]
    world.take()
    assert len(world.told(LateAnswers)) == 1


def test_an_answer_frees_the_workers_slot() -> None:
    """`on_answer` is called for the answer that counts, and for no other."""
    _, delivery = started(MANUAL)
    rung: list[bool] = []
    delivery.arm(lambda: rung.append(True))
    delivery.ack()
    delivery.ack()
    assert rung == [True]


def test_a_refused_wait_answers_nothing() -> None:
    """After `retry(after="30")` failed the delivery can still be answered."""
    _, delivery = started(MANUAL)
    with pytest.raises(SettingError, match=r"^after='30'"):
        delivery.retry(after="30")
    assert delivery.outcome is None
    assert delivery.ack() is True


def test_under_automatic_ack_there_is_no_answer_by_hand() -> None:
    """The error names the handler and the fix."""
    world, delivery = started(AUTO)
    with pytest.raises(
        RuntimeError, match=r"handler 'bill' has ack='auto'.*register it with ack='manual'"
    ):
        delivery.ack()
    assert not world.inbox


def test_of_many_threads_one_answer_counts() -> None:
    """An answer is an atomic claim."""
    world, delivery = started(MANUAL)
    gate = threading.Barrier(8)
    counted: list[bool] = []

    def answer() -> None:
        gate.wait()
        counted.append(delivery.ack())

    threads = [threading.Thread(target=answer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counted) == [False] * 7 + [True]
    assert len(world.inbox) == 1


def test_first_deliveries_are_made_as_any_other() -> None:
    """They are made without its call; what that sets, each of them has."""
    world, delivery = started()
    record = delivery.record
    [made] = first_deliveries(delivery.assignment, [record], [7], [3], world.now_s)
    called = TrackedDelivery(delivery.assignment, record, 7, 3, world.now_s)
    names = [name for name in TrackedDelivery.__slots__ if hasattr(called, name)]
    assert "outcome" in names
    assert [getattr(made, name) for name in names] == [getattr(called, name) for name in names]


def test_a_held_delivery_starts_afresh() -> None:
    """Reopened, it has no deadline, no extension and no outcome."""
    world, delivery = started()
    delivery.extend("1h")
    delivery.finished_s = world.now_s
    delivery.outcome = ACKED
    delivery.reopen()
    assert (delivery.outcome, delivery.started_s, delivery.finished_s) == (None, 0.0, 0.0)
    assert delivery.deadline_s is None
    delivery.started_s = world.now_s
    assert delivery.deadline_s == world.now_s + 10


def test_a_claim_can_be_given_back() -> None:
    """What the deadline took and did not use is there for the next."""
    _, delivery = started(MANUAL)
    assert delivery.claim() is True
    assert delivery.claim() is False
    delivery.unclaim()
    assert delivery.ack() is True


def test_lanes_are_named_by_partition_or_key() -> None:
    """A record without a key has no order to keep; an empty key is a key."""
    world = World()
    world.assign()
    for offset, key in enumerate([b"a", b"", None]):
        world.read([offset], key=key)
    deliveries = [item for item in world.ready if isinstance(item, TrackedDelivery)]
    assert [d.lane_key(by_key=True) for d in deliveries] == [
        ("orders", 0, b"a"),
        ("orders", 0, b""),
        ("orders", 0, 2),
    ]
    assert {d.lane_key(by_key=False) for d in deliveries} == {("orders", 0, None)}
