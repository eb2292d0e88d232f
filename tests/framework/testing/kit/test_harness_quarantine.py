"""Harness: what a test sees of a handler that quarantines its keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackfloor import App, DeadLetter, Delivery, RetryPolicy
from ackfloor.core.messages.lane_order import Action, LaneAnswer, LaneOrder
from ackfloor.core.state.assignment import AfterDeadLetter
from ackfloor.testing import Harness, QuarantinedKey

POLICY = RetryPolicy(delays=["1s", "5s"])


def shop(
    fails: Callable[[str, int], bool],
    after: AfterDeadLetter = "continue",
    seen: list[str] | None = None,
) -> App:
    """Handles texts; "bad ..." are rejected for good."""
    app = App("shop")

    @app.handler(
        "orders", ordering="key", on_failure="quarantine", after_dead_letter=after, retry=POLICY
    )
    async def bill(value: str, delivery: Delivery) -> None:
        if seen is not None:
            seen.append(value)
        if value.startswith("bad"):
            raise DeadLetter("no such order")
        if fails(value, delivery.attempt):
            raise ConnectionError("the bank is away")

    return app


def never(_value: str, _attempt: int) -> bool:
    """No order fails."""
    return False


def test_a_key_waits_behind_its_failed_record_and_others_go_on() -> None:
    """It fails twice; what follows of it is parked, and handled after it, in order."""
    seen: list[str] = []
    app = shop(lambda value, attempt: value == "a1" and attempt < 3, seen=seen)
    with Harness(app) as h:
        for value in ("a1", "a2", "b1", "a3"):
            h.send("orders", value, key=value[0])
        assert seen == ["a1", "b1"]
        assert h.quarantined("orders") == {
            b"a": QuarantinedKey(partition=0, offset=0, behind=2, held=False)
        }
        assert [record.reason for record in h.parked("orders") if record.due is None] == [
            "behind",
            "behind",
        ]
        h.advance("1s")
        h.send("orders", "a4", key="a")
        assert h.quarantined("orders")[b"a"].behind == 3
        assert h.floor("orders") == 5
        h.advance("5s")
        assert [record.value for record in h.handled("orders")] == [
            b"b1", b"a1", b"a2", b"a3", b"a4",
        ]  # fmt: skip
        assert [record.attempt for record in h.handled("orders")] == [1, 3, 1, 1, 1]
        assert h.quarantined("orders") == {}
        assert h.parked("orders") == []
        h.send("orders", "a5", key="a")
        assert seen[-1] == "a5"


def test_a_crash_keeps_the_order_of_a_quarantined_key() -> None:
    """The next worker finds it in the retry topics."""
    app = shop(lambda value, attempt: value == "a1" and attempt < 2)
    with Harness(app) as h:
        for value in ("a1", "a2"):
            h.send("orders", value, key="a")
        h.restart()
        assert h.quarantined("orders") == {
            b"a": QuarantinedKey(partition=0, offset=0, behind=1, held=False)
        }
        h.advance("1s")
        assert [record.value for record in h.handled("orders")] == [b"a1", b"a2"]


def test_a_held_key_waits_until_an_operator_frees_it() -> None:
    """Its record is dead-lettered; a delay, a park or a dead letter that says nothing leave it."""
    with Harness(shop(never, "hold")) as h:
        h.send("orders", "bad", key="a")
        h.send("orders", "a2", key="a")
        h.send("orders", "a3", key="a")
        h.advance("1h")
        assert h.quarantined("orders") == {
            b"a": QuarantinedKey(partition=0, offset=0, behind=2, held=True)
        }
        assert [record.value for record in h.dlq("orders")] == [b"bad"]
        assert [record.reason for record in h.parked("orders")] == ["held", "behind", "behind"]
        assert does(h, Action.DELAY, delay_s=60.0).left == {"held": 1}
        assert does(h, Action.DEAD_LETTER).left == {"held": 1}
        assert does(h, Action.PARK).left == {"parked": 1}
        dry = does(h, Action.RETRY, dry_run=True)
        assert (dry.done, dry.freed, h.quarantined("orders")[b"a"].behind) == (1, 1, 2)
        # The place that it names leads to the same head.
        named = does(h, Action.RETRY, *dry.places, dry_run=True)
        assert (named.done, named.found, named.places) == (1, {0}, dry.places)
        answer = does(h, Action.RETRY, ("orders", 0, 0))
        assert (answer.done, answer.freed, answer.found) == (1, 1, {0})
        assert [record.value for record in h.handled("orders")] == [b"a2", b"a3"]
        assert h.quarantined("orders") == {}
        assert h.parked("orders") == []


@pytest.mark.parametrize("followers", [True, False])
def test_what_is_behind_a_held_record_goes_on_or_goes_with_it(followers: bool) -> None:
    """As the operator says."""
    with Harness(shop(never, "hold")) as h:
        for value in ("bad", "a2", "a3"):
            h.send("orders", value, key="a")
        answer = does(h, Action.DEAD_LETTER, b"a", with_behind=followers)
        assert (answer.done, answer.freed, answer.left) == (1, 0 if followers else 1, {})
        rest = [b"a2", b"a3"]
        assert [record.value for record in h.dlq("orders")] == [b"bad", *rest * followers]
        assert [record.value for record in h.handled("orders")] == rest * (not followers)
        assert h.quarantined("orders") == {}


@pytest.mark.parametrize("followers", [True, False, None])
@pytest.mark.parametrize("after", ["continue", "dead_letter", "hold"])
def test_a_waiting_head_is_dead_lettered(after: AfterDeadLetter, followers: bool | None) -> None:
    """The operator's word on those behind it is before the handler's; in order, nothing lost."""
    app = shop(lambda value, attempt: value == "a1", after)
    with Harness(app) as h:
        for value in ("a1", "a2", "b1", "a3"):
            h.send("orders", value, key=value[0])
        answer = does(h, Action.DEAD_LETTER, b"a", with_behind=followers)
        assert (answer.done, answer.left) == (1, {})
        ends = after if followers is None else "dead_letter" if followers else "continue"
        dead = [b"a1", b"a2", b"a3"] if ends == "dead_letter" else [b"a1"]
        handled = [b"b1", b"a2", b"a3"] if ends == "continue" else [b"b1"]
        assert [record.value for record in h.dlq("orders")] == dead
        assert [record.value for record in h.handled("orders")] == handled
        left = {b"a": QuarantinedKey(partition=0, offset=0, behind=2, held=True)}
        assert h.quarantined("orders") == (left if ends == "hold" else {})


def test_a_waiting_head_is_tried_put_off_or_discarded() -> None:
    """What waits behind it goes on once it has ended."""
    app = shop(lambda value, attempt: value == "a1" and attempt < 3)
    with Harness(app) as h:
        for value in ("a1", "a2"):
            h.send("orders", value, key="a")
        assert does(h, Action.DELAY, b"a", delay_s=3600.0).done == 1
        h.advance("10m")
        assert h.handled("orders") == []
        assert does(h, Action.RETRY, ("orders", 0, 0)).done == 1
        assert h.handled("orders") == []
        assert does(h, Action.DISCARD, b"a", reason="a test order").done == 1
        assert [record.value for record in h.handled("orders")] == [b"a2"]
        assert h.quarantined("orders") == {}
        assert does(h, Action.RETRY, b"a").found == set()


def does(
    h: Harness, action: Action, *wanted: bytes | tuple[str, int, int], **more: object
) -> LaneAnswer:
    """An operator wants something done."""
    worker, _ = h._running()
    order = LaneOrder(action, "bill", wanted, **more)  # type: ignore[arg-type]
    answer = worker.loop.engine.lane_orders.carry_out(order, h.clock.now())
    h.settle()
    return answer
