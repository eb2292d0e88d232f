"""Parking with copies for other tools switched on: from the source through a tier to the DLQ."""

from __future__ import annotations

from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure, Headers
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import START_MS, MemoryRecord, World

OWN = [("trace", b"\xff"), ("kafka_dlt-original-topic", b"elsewhere"), ("trace", None)]
TIER = "orders--g--retry-1s"


def fail(world: World, record: MemoryRecord) -> Headers:
    """Let the record's handler fail; the headers it is parked with."""
    world.engine.polled([record], world.now)
    world.take()
    world.finish(world.start(), Failed(Failure("E", "no")))
    return world.writes[-1].headers


def named(headers: Headers, name: str) -> list[bytes | None]:
    """All values of one name."""
    return [value for found, value in headers if found == name]


def test_copies_for_other_tools_neither_grow_nor_replace_the_record_s_own() -> None:
    """A record that came from another tool's dead-letter topic keeps its headers in the DLQ."""
    world = World(HandlerRules("bill", policy=RetryPolicy.fixed("1s", 1)))
    parking = world.engine._state.parking
    parking.spring_headers = parking.kafka_headers = True
    world.assign()
    world.assign(topic=TIER)

    parked = fail(world, MemoryRecord("orders", 0, 0, _headers=OWN))
    world.now_s += 2
    buried = fail(world, MemoryRecord(TIER, 0, 0, _headers=parked, _timestamp_ms=START_MS + 5))

    assert world.writes[0].topic == TIER
    assert world.writes[1].topic == "orders--g--dlq"
    for headers in (parked, buried):
        assert list(headers[:3]) == OWN
        assert named(headers, "kafka_dlt-original-topic") == [b"elsewhere", b"orders"]
        assert named(headers, "kafka_dlt-original-timestamp-type") == [b"CreateTime"]
        assert named(headers, "__dlq.errors.topic") == [b"orders"]
    assert named(buried, "__dlq.errors.delivery.count") == [b"2"]
    assert [name for name, _ in buried if name not in dict(parked)] == []
