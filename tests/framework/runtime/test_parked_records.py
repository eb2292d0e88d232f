"""A worker that takes a partition over is told what is parked in a quarantine's retry topics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from ackfloor import App, RetryPolicy
from ackfloor.core.engine.engine import Engine
from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.core.records.record import Now, ParkedRecord, StartPosition
from ackfloor.core.state.worker_state import Route
from ackfloor.declare.registration import OnFailure
from ackfloor.runtime.loop.worker_assembly import Topology
from ackfloor.testing import Harness
from tests.contracts.parked_contract import untimed
from tests.framework.runtime.on_kafka import on_kafka

HOUR_S = 3_600.0


def failing(group: str, topic: str, on_failure: OnFailure = "quarantine") -> App:
    """A handler that fails every record, and tries again in an hour."""
    app = App(group)

    @app.handler(topic, ordering="key", on_failure=on_failure, retry=RetryPolicy(delays=["1h"]))
    async def handle(value: bytes) -> None:
        raise ValueError(value)

    return app


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[StartPosition]:
    """What engines are given to start from."""
    given: list[StartPosition] = []
    assign = Engine.assign

    def noting(self: Engine, starts: Sequence[StartPosition], now: Now) -> None:
        given.extend(starts)
        assign(self, starts, now)

    monkeypatch.setattr(Engine, "assign", noting)
    return given


def _timeless(record: ParkedRecord) -> ParkedRecord:
    return record._replace(origin_timestamp_ms=None, failed_ms=None)


def parked(starts: list[StartPosition], topic: str) -> list[tuple[ParkedRecord, ...]]:
    """What was parked in the first partition of a topic at each of its starts.

    The times when they were written and when they failed are known of all, and left out.
    """
    found = [
        untimed(start.parked) for start in starts if start.topic == topic and start.partition == 0
    ]
    for record in (record for each in found for record in each):
        assert record.origin_timestamp_ms
        assert record.failed_ms
        assert record.failed_ms >= record.origin_timestamp_ms
    return [tuple(_timeless(record) for record in each) for each in found]


PARKED = ParkedRecord(0, b"k", 0, 1)


def test_in_memory(starts: list[StartPosition]) -> None:
    """After a crash, and of the retry topic alone."""
    with Harness(failing("g", "orders")) as harness:
        harness.send("orders", b"x", key=b"k")
        harness.settle()
        harness.restart()
    assert parked(starts, tier_topic("orders", "g", HOUR_S)) == [(), (PARKED,)]
    assert parked(starts, "orders") == [(), ()]


def test_where_no_key_is_quarantined_nothing_is_told(starts: list[StartPosition]) -> None:
    """Whoever parks without order needs not know."""
    with Harness(failing("g", "orders", "park")) as harness:
        harness.send("orders", b"x", key=b"k")
        harness.settle()
        harness.restart()
    assert parked(starts, tier_topic("orders", "g", HOUR_S)) == [(), ()]


@pytest.mark.kafka
@pytest.mark.parametrize("parking", ["at_least_once", "transactional"])
def test_on_kafka(bootstrap_servers: str, starts: list[StartPosition], parking: str) -> None:
    """The next worker of the app, whether it parks in transactions or not."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app = failing(place.group, place.topic)
        tier = tier_topic(place.topic, place.group, HOUR_S)
        first = crowd.start(app, parking=parking)
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        producer.produce(place.topic, b"x", b"k")
        assert producer.flush(60) == 0
        crowd.until(lambda: place.committed() == 1)
        first.close()
        second = crowd.start(app, parking=parking)
        crowd.until(lambda: second.owns(tier))
        assert parked(starts, tier) == [(), (PARKED,)]
        assert parked(starts, place.topic) == [(), ()]


def test_the_topics_are_those_of_handlers_that_quarantine() -> None:
    """All their retry topics, also those that an earlier policy has left."""
    routes = {
        "orders": Route("bill", "orders", quarantines=True),
        "orders-1s": Route("bill", "orders", 1.0, quarantines=True),
        "orders-1h": Route("bill", "orders", HOUR_S, quarantines=True),
        "mails": Route("send", "mails"),
        "mails-1h": Route("send", "mails", HOUR_S),
    }
    found = Topology(routes, {}).quarantined_topics()
    assert found == {"orders-1s": "orders", "orders-1h": "orders"}
