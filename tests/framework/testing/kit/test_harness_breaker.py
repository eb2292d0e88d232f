"""The harness and circuit breakers that are not closed."""

from __future__ import annotations

from math import inf

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.testing import Harness


def test_what_was_delivered_from_a_retry_topic_and_is_withheld_is_no_longer_parked() -> None:
    """It waits there again, but has been delivered."""
    app, seen = App(group="g"), list[str]()
    waits = RetryPolicy.fixed("1s", 3, jitter=0)

    @app.handler("orders", name="bill", retry=waits, breaker=CircuitBreaker(5, park_rate="1/h"))
    def bill(delivery: Delivery) -> None:
        seen.append(delivery.topic)
        raise ValueError("no such order")

    with Harness(app) as h:
        h.send("orders", b"x")
        assert len(h.parked("orders")) == 1
        engine = h._running()[0].loop.engine
        handler = engine.state.handlers["bill"]
        engine.force("bill", Forced.OPEN, inf, "", h.clock.now())
        while handler.circuit.bucket.take(0.0001, 1.0, h.clock.monotonic()):
            pass
        h.advance("1500ms")
        assert seen == ["orders", "orders--g--retry-1s"]
        assert engine.state.withheld(handler) == 1
        assert h.parked("orders") == []
