"""How handlers end, and what becomes of their records: the same under every executor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor import (
    App,
    DeadLetter,
    Delivery,
    Discard,
    Retry,
    RetryPolicy,
    current_delivery,
)
from ackfloor.core.messages.events import DeliveryFailed, RecordDiscarded
from tests.contracts.executor_contract import EXITS
from tests.framework.runtime.live import (
    EVERY_KIND,
    KINDS,
    KINDS_AND_ACKS,
    Gate,
    Script,
    live,
    register,
)

SOON = RetryPolicy.fixed("20ms", 1)


class Speechless(Exception):
    """An exception whose text is an exit."""

    def __str__(self) -> str:
        raise SystemExit(0)


EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)


def raising(exc: BaseException, seen: list[int] | None = None) -> Script:
    """A script that raises on its first delivery of a record, and succeeds on later ones."""

    def script(delivery: Delivery) -> Iterator[Gate]:
        if seen is not None:
            seen.append(delivery.attempt)
        if delivery.attempt == 1:
            raise exc
        return
        yield

    return script


@EVERY
def test_a_return_settles(kind: str) -> None:
    """What returns is handled, and its floor is committed."""
    app, seen = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        return
        yield

    register(app, kind, "orders", script)
    with live(app) as worker:
        worker.send("orders", n=50)
        worker.until(lambda: len(seen) == 50 and worker.settled())
        assert worker.close() == 0
        committed = worker.broker.committed("g", "orders")
    assert committed is not None
    assert committed.position == 50
    assert sorted(seen) == list(range(50))


@EVERY
@pytest.mark.parametrize(
    "exc",
    [
        ValueError("no such account"),
        TimeoutError("the handler's own"),
        MemoryError(),
        KeyError("missing"),
        *EXITS,
    ],
    ids=repr,
)
def test_whatever_is_raised_is_retried_by_the_policy(kind: str, exc: BaseException) -> None:
    """An error is an error, also an exit or a CancelledError of the handler's own making."""
    app, attempts = App("g"), []
    register(app, kind, "orders", raising(exc, attempts), retry=SOON)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: attempts == [1, 2] and worker.settled())
        (parked,) = worker.parked("orders")
    assert (parked.reason, parked.attempt) == ("error", 1)
    assert parked.error_type.endswith(type(exc).__name__)


@EVERY
def test_an_exhausted_budget_ends_in_the_dead_letter_queue(kind: str) -> None:
    """With the last error and every attempt counted."""
    app, attempts = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        attempts.append(delivery.attempt)
        raise ValueError(f"attempt {delivery.attempt}")
        yield

    register(app, kind, "orders", script, retry=SOON)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
    assert attempts == [1, 2]
    assert (dead.reason, dead.attempt, dead.error_message) == ("exhausted", 2, "attempt 2")


@EVERY
def test_retry_waits_as_long_as_it_says(kind: str) -> None:
    """Never shorter, and the reason is kept."""
    app, attempts = App("g"), []
    register(
        app, kind, "orders", raising(Retry(after="60ms", reason="locked"), attempts), retry=SOON
    )
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: attempts == [1, 2] and worker.settled())
        first = worker.parked("orders")[0]
        (source,) = worker.broker.records("orders")
    assert (first.reason, first.error_message) == ("retry", "locked")
    assert first.due is not None
    assert first.due.timestamp() * 1000 - source.timestamp()[1] >= 60


@EVERY
def test_dead_letter_and_listed_errors_are_not_retried(kind: str) -> None:
    """Straight to the queue, after one delivery."""
    app = App("g")

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.value == b"asked":
            raise DeadLetter("no such order")
        raise FileNotFoundError("listed by its base class")
        yield

    register(app, kind, "orders", script, dead_letter_on=(OSError,))
    with live(app) as worker:
        worker.send("orders", b"asked")
        worker.send("orders", b"listed")
        worker.until(lambda: len(worker.dlq("orders")) == 2)
        dead = {record.value: record for record in worker.dlq("orders")}
    assert dead[b"asked"].error_message == "no such order"
    assert dead[b"listed"].error_type == "FileNotFoundError"
    assert {record.reason for record in dead.values()} == {"dead_letter"}
    assert {record.attempt for record in dead.values()} == {1}


@EVERY
def test_discard_settles_and_is_told(kind: str) -> None:
    """Nothing is written anywhere; observers learn of it."""
    app = App("g")
    register(app, kind, "orders", raising(Discard("a test order")))
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.watcher.told(RecordDiscarded))
        assert worker.settled()
        assert worker.watcher.told(RecordDiscarded)[0].reason == "a test order"
        assert worker.parked("orders") + worker.dlq("orders") == []


class Mute(Exception):
    """An exception without words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@EVERY
def test_an_exception_that_can_not_say_what_it_is_is_an_error_like_others(kind: str) -> None:
    """A `__str__` that raises is user code as well, and costs no slot."""
    app, attempts = App("g"), []
    register(app, kind, "orders", raising(Mute(), attempts), retry=SOON, concurrency=1)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: attempts == [1, 2] and worker.settled())
        (failed,) = worker.watcher.told(DeliveryFailed)
    assert "RuntimeError" in failed.error_message


class Odd(SyntaxError):
    """An exception that the traceback module can't print."""

    text = 5  # type: ignore[assignment]


@pytest.mark.parametrize(
    "exc",
    [
        DeadLetter(ValueError("no such account")),  # type: ignore[arg-type]
        DeadLetter(None),  # type: ignore[arg-type]
        Retry(reason=404),  # type: ignore[arg-type]
        Odd("m", ("f", 1, 1, "x")),
    ],
    ids=["exception", "none", "number", "unprintable"],
)
@pytest.mark.parametrize(("kind", "ack"), KINDS_AND_ACKS)
def test_a_reason_that_is_no_text_costs_no_slot(kind: str, ack: str, exc: Exception) -> None:
    """`raise DeadLetter(exc)` comes easily: the record leaves and the next one is handled."""
    app, handled = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.value == b"bad":
            raise exc
        handled.append(delivery.value)
        if ack == "manual":
            delivery.ack()
        return
        yield

    none = RetryPolicy(max_redeliveries=0)
    register(app, kind, "orders", script, retry=none, concurrency=1, ack=ack)
    with live(app) as worker:
        worker.send("orders", b"bad")
        worker.send("orders", b"good")
        worker.until(lambda: handled == [b"good"] and worker.settled())
        assert len(worker.dlq("orders")) == 1


@EVERY
def test_what_an_exception_says_of_itself_may_exit_as_well(kind: str) -> None:
    """Its record fails without a text."""
    app = App("g")

    def script(delivery: Delivery) -> Iterator[Gate]:
        raise Speechless
        yield

    register(app, kind, "orders", script, retry=SOON)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.dlq("orders") and worker.settled())
        (dead,) = worker.dlq("orders")
    assert dead.error_message == "<no text: its __str__ raised SystemExit>"


@EITHER
def test_an_exit_before_an_answer_by_hand_is_the_failure_of_its_record(kind: str) -> None:
    """As any other exception."""
    app, attempts = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise SystemExit(0)
        delivery.ack()
        return
        yield

    register(app, kind, "orders", script, ack="manual", retry=SOON)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: attempts == [1, 2] and worker.settled())
        (parked,) = worker.parked("orders")
    assert (parked.reason, parked.error_type) == ("error", "SystemExit")


@EITHER
@pytest.mark.parametrize("end", EXITS, ids=repr)
def test_an_exit_after_an_answer_by_hand_is_logged_and_changes_nothing(
    kind: str, end: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is settled, and the slot goes on."""
    app, seen = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        delivery.ack()
        if delivery.offset == 0:
            raise end
        return
        yield

    register(app, kind, "orders", script, ack="manual", retry=SOON, concurrency=1)
    with live(app) as worker:
        worker.send("orders", n=3)
        worker.until(lambda: len(seen) == 3 and worker.settled())
        worker.until(lambda: "raised after its delivery had been answered" in caplog.text)
        assert worker.parked("orders") + worker.dlq("orders") == []
        assert worker.close() == 0


@EITHER
def test_the_delivery_at_hand_is_known_everywhere_in_a_handler(kind: str) -> None:
    """Each of many handlers at once sees its own, and outside there is none."""
    app, gate, seen = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield gate
        seen.append((delivery, current_delivery()))

    register(app, kind, "orders", script, concurrency=8)
    with live(app) as worker:
        worker.send("orders", n=8)
        worker.until(lambda: gate.arrived == 8)
        gate.open()
        worker.until(lambda: len(seen) == 8)
    assert all(own is current for own, current in seen)
    assert len({own.offset for own, _ in seen}) == 8
    assert current_delivery() is None
