"""A run on a real broker whose values were written through a schema registry."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from ackfloor.core.records.envelope import Reason, read_envelope
from ackfloor.testing import SchemaRegistry
from tests.e2e.stage import Stage, ready, reasons
from tests.framework.kafka.schemas_written import AVRO, framed

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

APP = """
from pydantic import BaseModel

from ackfloor.schemas import Avro

app = App("GROUP")


class Order(BaseModel):
    id: int
    buyer: str


@app.handler("TOPIC", decoder=Avro())
async def bill(order: Order, delivery: Delivery) -> None:
    assert order.buyer == "mina"
    note(handled, delivery)
"""
SECRET = "swordfish"


def test_a_registry_that_is_away_loses_nothing(make_stage: Callable[..., Stage]) -> None:
    """What waits for its schema stays open, and readiness says so; it goes on by itself when the
    registry is back. A schema that nobody knows is a dead letter, byte for byte."""
    stage = make_stage(APP, partitions=1)
    with SchemaRegistry(username="reader", password=SECRET) as registry:
        number = registry.register(f"{stage.topic}-value", AVRO)
        known = framed(number, {"id": 7, "buyer": "mina"})
        unknown = framed(99, {"id": 7, "buyer": "mina"})
        registry.fault = 503
        run = stage.run(
            ACKFLOOR_REGISTRY__URL=registry.url,
            ACKFLOOR_REGISTRY__USERNAME="reader",
            ACKFLOOR_REGISTRY__PASSWORD=SECRET,
        )
        run.until(ready(run), "the run is ready")
        stage.produce(3, known)
        run.until(lambda: "HTTP 503 for schema 1" in str(reasons(run)), "readiness says why")
        stage.produce(1, unknown)
        assert (stage.records(), stage.end_of(f"{stage.topic}--{stage.group}--dlq")) == (0, 0)

        registry.fault = None
        run.until(lambda: stage.records() == 3, "it goes on by itself")
        run.until(lambda: stage.committed() == 4, "all are settled")
        run.until(ready(run), "the run is ready again")
        assert dict(stage.noted()) == {f"0/{offset}#1": 1 for offset in range(3)}
        value, reason = dead_letter(stage)
        assert (value, reason) == (unknown, Reason.DECODE)
        registry.asked.clear()
        stage.produce(200, known)
        run.until(lambda: stage.records() == 203, "what comes later is handled")
        assert registry.asked == [], "what is known is not asked for"
        run.signal(signal.SIGTERM)
        assert run.wait() == 0
        assert not [line for line in run.drain() if SECRET in line]


COPIES = """
from ackfloor.schemas import Avro

app = App("GROUP")


@app.handler("TOPIC", decoder=Avro())
async def copy(order: dict, delivery: Delivery) -> None:
    if "copied" not in dict(delivery.headers):
        await app.publish("TOPIC", order, encoder=Avro(), headers={"copied": "1"})
    note(handled, delivery)
"""


def test_a_run_publishes_by_a_schema(make_stage: Callable[..., Stage]) -> None:
    """With the registry of its settings, and in the bytes that any serialiser writes."""
    stage = make_stage(COPIES, partitions=1)
    with SchemaRegistry() as registry:
        number = registry.register(f"{stage.topic}-value", AVRO)
        value = framed(number, {"id": 7, "buyer": "mina"})
        run = stage.run(ACKFLOOR_REGISTRY__URL=registry.url)
        run.until(ready(run), "the run is ready")
        stage.produce(3, value)
        run.until(lambda: stage.committed() == 6, "all are settled, the copies too")
        assert f"GET /subjects/{stage.topic}-value/versions/latest" in registry.asked
        assert written(stage, 6) == [value] * 6
        run.signal(signal.SIGTERM)
        assert run.wait() == 0


def written(stage: Stage, count: int) -> list[bytes | None]:
    """The first values of the source topic."""
    reader = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    try:
        reader.assign([TopicPartition(stage.topic, 0, 0)])
        found = reader.consume(count, 60)
        assert [letter.error() for letter in found] == [None] * count
        return [letter.value() for letter in found]
    finally:
        reader.close()


def dead_letter(stage: Stage) -> tuple[bytes | None, Reason | None]:
    """The first dead letter's value, and why it is one."""
    reader = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    try:
        reader.assign([TopicPartition(f"{stage.topic}--{stage.group}--dlq", 0, 0)])
        letter = reader.poll(60)
        assert letter is not None
        assert letter.error() is None
        return letter.value(), read_envelope(letter.headers()).reason
    finally:
        reader.close()
