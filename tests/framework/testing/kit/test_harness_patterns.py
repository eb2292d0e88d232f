"""The test kit with topic patterns: topics that match exist once a test writes to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.parking.topic_names import dlq_topic
from ackfloor.errors import ConfigError
from ackfloor.testing import Harness


def shop(**options: Any) -> tuple[App, list[tuple[str, bytes]]]:
    """An app whose one handler takes every topic of orders, and what it was given."""
    app, seen = App("billing", **options), list[tuple[str, bytes]]()

    @app.handler("^orders-.*", retry=RetryPolicy.fixed("5s", max_redeliveries=1))
    async def bill(order: bytes, delivery: Delivery) -> None:
        seen.append((delivery.topic, order))
        if order == b"bad":
            raise ValueError

    return app, seen


def test_a_topic_that_a_pattern_matches_need_not_exist() -> None:
    """Each is handled from its first record, and keeps what belongs to it apart."""
    app, seen = shop()
    with Harness(app) as h:
        h.send("orders-eu", b"1")
        h.send("orders-us", b"2")
        h.send("orders-eu", b"3")
        assert seen == [("orders-eu", b"1"), ("orders-us", b"2"), ("orders-eu", b"3")]
        assert [record.value for record in h.handled("orders-eu")] == [b"1", b"3"]
        assert h.handled("orders-asia") == []


def test_a_failed_record_waits_in_the_retry_topic_of_its_own_topic() -> None:
    """And ends in its dead-letter topic; neither of them is taken for one of the pattern's."""
    app, seen = shop()
    with Harness(app) as h:
        h.send("orders-eu", b"bad")
        assert [r.topic for r in h.parked("orders-eu")] == ["orders-eu--billing--retry-5s"]
        h.send("orders-us", b"fine")
        h.advance("5s")
        assert [r.value for r in h.dlq("orders-eu")] == [b"bad"]
        assert h.dlq("orders-us") == []
        assert dlq_topic("orders-eu--billing--dlq", "billing") not in h.broker.topics
    assert [topic for topic, _ in seen] == [
        "orders-eu", "orders-us", "orders-eu--billing--retry-5s"
    ]  # fmt: skip


def test_topics_that_are_named_beforehand_exist_from_the_start() -> None:
    """With as many partitions as a test wants."""
    app, _ = shop()
    with Harness(app, partitions={"orders-eu": 3}) as h:
        h.send("orders-eu", b"1", partition=2)
        assert h.floor("orders-eu", 2) == 1
        assert h.broker.topics["orders-eu--billing--retry-5s"] == 3


def test_a_topic_that_a_handler_publishes_to_is_found() -> None:
    """What it holds by then is handled."""
    app, seen = shop()

    @app.handler("intake")
    async def sort(order: bytes) -> None:
        await app.publish(f"orders-{order.decode()}", order)

    with Harness(app) as h:
        h.send("intake", b"eu")
        assert seen == [("orders-eu", b"eu")]


def test_a_topic_that_is_found_late_is_read_from_its_start_also_at_latest() -> None:
    """One that was there before the group is not; a restart changes nothing of that."""
    app, seen = shop(start="latest")
    with Harness(app, partitions={"orders-old": 1}) as before:
        before.broker.create_topic("orders-new")
        before.broker.produce("orders-new", b"first")
        before.settle()
        assert seen == [("orders-new", b"first")]
        before.restart()
        before.send("orders-new", b"second")
    assert seen == [("orders-new", b"first"), ("orders-new", b"second")]


def test_what_is_open_when_a_topic_is_found_is_delivered_again() -> None:
    """The worker is replaced: nothing that ran is lost, and no budget is spent."""
    app, attempts = App("billing"), list[tuple[bytes, int]]()

    @app.handler("^orders-.*")
    async def bill(order: bytes, delivery: Delivery) -> None:
        attempts.append((order, delivery.attempt))
        if order == b"slow":
            await asyncio.sleep(10)

    with Harness(app) as h:
        h.send("orders-eu", b"slow")
        h.send("orders-us", b"quick")
        h.advance("10s")
        assert sorted(attempts) == [(b"quick", 1), (b"slow", 1), (b"slow", 1)]
        assert [r.value for r in h.handled("orders-eu")] == [b"slow"]
        assert h.errors == []


def test_a_topic_that_two_patterns_match_is_refused() -> None:
    """The error names both handlers and the topic."""
    app, _ = shop()

    @app.handler("^.*-eu")
    async def europe(order: bytes) -> None: ...

    with Harness(app) as h, pytest.raises(ConfigError) as refused:
        h.send("orders-eu", b"1")
    for named in ("handlers.bill.topics='^orders-.*'", "orders-eu", "'europe'", "'^.*-eu'"):
        assert named in str(refused.value)


def test_settings_change_while_it_runs() -> None:
    """The topics stay; a retry delay without a topic is refused as ever."""
    app, seen = shop()
    with Harness(app) as h:
        h.send("orders-eu", b"1")
        h.reload({"handlers": {"bill": {"consume_timeout": "2s"}}})
        h.send("orders-eu", b"2")
        with pytest.raises(ConfigError, match="no retry topic of orders-eu with this delay"):
            h.reload({"handlers": {"bill": {"retry": {"delays": "7s"}}}})
    assert [order for _, order in seen] == [b"1", b"2"]


def test_a_topic_that_nothing_takes_is_still_an_error() -> None:
    """A misspelt topic must not pass as one where nothing happened."""
    app, _ = shop()
    with Harness(app) as h, pytest.raises(ValueError, match=r"no handler takes it.*\^orders-"):
        h.send("order-eu", b"1")
