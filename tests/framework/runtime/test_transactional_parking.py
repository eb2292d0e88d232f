"""Transactional parking of a whole worker in memory: crashes, faults, rebalances, and the end."""

from __future__ import annotations

from collections import Counter

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.errors import ConfigError
from ackfloor.testing import Harness

ONCE = RetryPolicy.fixed("1s", 1, jitter=0)


def app_of(group: str = "billing") -> App:
    """One that fails every record of `orders`."""
    app = App(group, parking="transactional")

    @app.handler("orders", retry=ONCE, breaker=None)
    async def fail(_: Delivery) -> None:
        raise ValueError("always")

    return app


def origins(h: Harness, topic: str) -> Counter[bytes]:
    """How often each value is in a topic."""
    return Counter(record.value() or b"" for record in h.broker.records(topic))


def test_a_crash_at_any_turn_parks_nothing_twice() -> None:
    """After each step of the way, from the first delivery to the last dead letter."""
    values = Counter({b"%d" % n: 1 for n in range(12)})
    with Harness(app_of(), partitions=2) as h:
        for value in values:
            h.send("orders", value)
        for _ in range(6):
            h.advance("400ms")
            h.restart()
        h.advance("3s")
        assert origins(h, "orders--billing--retry-1s") == values
        assert origins(h, "orders--billing--dlq") == values


def test_a_target_that_refuses_keeps_its_records_and_lets_others_pass() -> None:
    """The dead-letter topic is away: retries go on, and dead letters are written in the end."""
    with Harness(app_of()) as h:
        h.broker.fail_publish("orders--billing--dlq")
        for n in range(3):
            h.send("orders", b"%d" % n)
        h.advance("2s")
        assert h.dlq("orders") == []
        h.send("orders", b"3")
        h.advance("100ms")
        assert [record.value for record in h.parked("orders")] == [b"3"]
        h.broker.heal()
        h.advance("20s")
        assert origins(h, "orders--billing--dlq") == Counter({b"%d" % n: 1 for n in range(4)})


def test_a_refused_commit_parks_nothing() -> None:
    """Neither is there without the other."""
    with Harness(app_of()) as h:
        h.broker.fail_commit("billing")
        h.send("orders", b"x")
        h.advance("100ms")
        assert h.broker.records("orders--billing--retry-1s") == []
        h.broker.heal()
        h.advance("10s")
        assert origins(h, "orders--billing--retry-1s") == Counter({b"x": 1})
        assert origins(h, "orders--billing--dlq") == Counter({b"x": 1})


def test_rebalances_park_nothing_twice() -> None:
    """Partitions leave and come back while parcels wait for their transactions."""
    values = Counter({b"%d" % n: 1 for n in range(20)})
    with Harness(app_of(), partitions=4) as h:
        for value in values:
            h.send("orders", value)
            h.broker.rebalance()
        for _ in range(8):
            h.advance("500ms")
            h.broker.rebalance()
        h.advance("5s")
        assert origins(h, "orders--billing--retry-1s") == values
        assert origins(h, "orders--billing--dlq") == values


def test_too_large_with_its_stack_is_parked_without() -> None:
    """It is tried alone, then lighter; its neighbours are written once."""
    with Harness(app_of()) as h:
        h.broker.limit_size("orders--billing--retry-1s", 650)
        for n in range(5):
            h.send("orders", b"%d" % n)
        h.advance("500ms")
        assert origins(h, "orders--billing--retry-1s") == Counter({b"%d" % n: 1 for n in range(5)})
        assert all(not record.error_stack for record in h.parked("orders"))


def test_broadcast_mode_refuses_it() -> None:
    """It commits nothing that a park could be written with."""
    app = App("billing", mode="broadcast", parking="transactional")

    @app.handler("orders")
    async def work(_: Delivery) -> None: ...

    with pytest.raises(ConfigError, match=r"app\.parking='transactional'.*at_least_once"):
        Harness(app).__enter__()
