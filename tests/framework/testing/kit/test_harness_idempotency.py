"""The idempotency key: one a record, over everything that delivers it again; and redrives."""

from __future__ import annotations

from itertools import chain
from typing import Literal

import pytest

from ackfloor import App, Delivery, RetryPolicy, SettingError
from ackfloor.core.records.envelope import IDEMPOTENCY_KEY, ORIGIN_TOPIC, PREFIX, REPLAYS
from ackfloor.testing import Harness

#: Where a redelivery waits: in a retry topic, or in memory, in its place.
FAILURES = ("park", "block", "quarantine")


class Declined(Exception):
    """What the handlers here raise."""


def failing(on_failure: Literal["park", "block", "quarantine"]) -> tuple[App, list[str]]:
    """An app whose handler always fails, and the keys that it was given."""
    app, keys = App("shop"), list[str]()
    retry = RetryPolicy.fixed("10s", 1)

    @app.handler("orders", ordering="key", on_failure=on_failure, retry=retry)
    async def bill(_value: bytes, delivery: Delivery) -> None:
        keys.append(delivery.idempotency_key)
        raise Declined

    return app, keys


@pytest.mark.parametrize("to", ["retry", "source"])
@pytest.mark.parametrize("on_failure", FAILURES)
def test_the_key_stays_over_redeliveries_retries_and_redrives(
    on_failure: Literal["park", "block", "quarantine"], to: str
) -> None:
    """A redelivery after a crash, a retry, a redrive and the retries after that."""
    app, keys = failing(on_failure)
    with Harness(app, partitions=2) as h:
        if to == "retry" and on_failure == "block":
            # Its handler retries in place: there is no retry topic.
            to = "source"
        h.send("orders", b"", key="ada", partition=1)
        h.restart()
        for dead in range(1, 4):
            # Nothing was committed between the park of before the crash and that of after it.
            h.advance("20s")
            assert len(h.dlq("orders")) == dead * (1 + (on_failure == "park"))
            assert h.redrive("orders", to) == 1 + (on_failure == "park")
    assert len(keys) >= 6
    assert set(keys) == {f"{h.broker.topic_id('orders')}/1/0"}


def test_other_records_and_an_earlier_topic_have_other_keys() -> None:
    """Offsets of one partition, partitions of one topic, and a topic made anew with its offsets."""
    app, keys = failing("park")
    with Harness(app, partitions=2) as h:
        h.send("orders", b"", partition=0)
        h.send("orders", b"", partition=0)
        h.send("orders", b"", partition=1)
        h.broker.delete_topic("orders")
        h.settle()
        h.broker.create_topic("orders", 2)
        h.restart()
        h.send("orders", b"", partition=1)
    assert len(keys) == len(set(keys)) == 4


def test_a_batch_has_a_key_for_each_record() -> None:
    """Also where they come again one by one."""
    app, keys = App("shop"), list[list[str]]()

    @app.handler("orders", batch=2, batch_wait="1s", retry=RetryPolicy.fixed("10s", 1))
    def store(_values: list[bytes], deliveries: list[Delivery]) -> None:
        keys.append([delivery.idempotency_key for delivery in deliveries])
        raise Declined

    with Harness(app) as h:
        h.send("orders", b"")
        h.send("orders", b"")
        h.advance("20s")
        first, second = keys[0]
        assert first != second
        assert sorted(chain.from_iterable(keys[1:])) == sorted([first, second] * 2)


def test_a_record_that_only_looks_redriven_has_a_key_of_its_own() -> None:
    """A handler of another topic has published what it was given with all its headers."""
    app, keys = failing("park")
    given = [(ORIGIN_TOPIC, b"carts"), (REPLAYS, b"1"), (IDEMPOTENCY_KEY, b"x/0/0")]
    with Harness(app) as h:
        h.send("orders", b"", headers=given)
        h.send("orders", b"", headers=[(ORIGIN_TOPIC, b"orders"), (IDEMPOTENCY_KEY, b"x/0/0")])
        h.advance("10s")
    own = h.broker.topic_id("orders")
    assert sorted(keys) == sorted([f"{own}/0/0", f"{own}/0/1"] * 2)


def test_what_a_handler_publishes_with_all_headers_is_another_record() -> None:
    """Also into its own topic, and while it handles a record that was redriven there."""
    app, keys = App("shop"), list[str]()

    @app.handler("orders", retry=RetryPolicy.fixed("10s", 1))
    async def bill(value: bytes, delivery: Delivery) -> None:
        keys.append(delivery.idempotency_key)
        if value:
            return
        if len(keys) < 3:
            raise Declined
        await app.publish("orders", b"follow-up", headers=delivery.headers)

    with Harness(app) as h:
        h.send("orders", b"")
        h.advance("20s")
        assert h.redrive("orders", "source") == 1
        h.advance("20s")
        assert [record.value for record in h.handled("orders")] == [b"", b"follow-up"]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] not in keys[:3]


def test_what_an_earlier_release_parked_has_one_key_from_then_on() -> None:
    """It wrote no key: the place of its origin and the timestamp there stand in for it."""
    app, keys = failing("park")
    with Harness(app) as h:
        h.send("orders", b"")
        (tier,) = (topic for topic in h.broker.topics if "--retry-" in topic)
        (waiting,) = h.broker.records(tier)
        h.broker.delete_topic(tier)
        h.broker.create_topic(tier)
        older = [header for header in waiting.headers() or () if header[0] != IDEMPOTENCY_KEY]
        assert len(older) < len(waiting.headers() or ())
        assert all(name.startswith(PREFIX) for name, _ in older)
        h.restart()
        keys.clear()
        h.broker.produce(tier, b"", headers=older, partition=0)
        h.advance("10s")
        h.redrive("orders")
        h.advance("20s")
        assert len(h.dlq("orders")) >= 2
    stamp_ms = dict(older)["ackfloor.origin.timestamp"]
    assert stamp_ms is not None
    assert f"orders/0/0/{stamp_ms.decode()}" in keys
    of_older = [key for key in keys if key.startswith("orders/")]
    assert len(of_older) >= 3
    assert len(set(of_older)) == 1


def test_a_redrive_sends_each_dead_letter_once() -> None:
    """As the command does, up to the most replays of one message; a wrong target is refused."""
    app, _ = failing("park")
    with Harness(app) as h:
        assert h.redrive("orders") == 0
        for _ in range(3):
            h.send("orders", b"")
        h.advance("10s")
        with pytest.raises(SettingError, match="the topic does not exist"):
            h.redrive("orders", "carts")
        assert h.redrive("orders") == 3
        assert h.redrive("orders") == 0
        for _ in range(6):
            h.advance("20s")
            h.redrive("orders")
        assert len(h.dlq("orders")) == 3 * 6
        with pytest.raises(ValueError, match="no handler takes it"):
            h.redrive("carts")
