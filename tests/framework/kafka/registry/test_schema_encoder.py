"""Values that `publish` writes by a schema of the registry: what decoders read, or an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from ackfloor import App, ConfigError, EncodeError, PublishFailed
from ackfloor.declare.encoders import Encoders
from ackfloor.declare.publishers import confirmed
from ackfloor.schemas import Avro, JsonSchema, Protobuf
from ackfloor.settings import RegistrySettings
from ackfloor.testing import Harness, MemoryBroker, SchemaRegistry
from ackfloor.testing.memory.memory_broker import MemoryPublisher
from tests.framework.kafka.schemas_written import (
    AVRO,
    JSON_SCHEMA,
    TOPIC,
    Order,
    OrderMessage,
    avro,
    json_schema,
    protobuf,
)

ORDER = {"id": 7, "buyer": "mina"}
SUBJECT = f"{TOPIC}-value"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """A registry of the test's own."""
    with SchemaRegistry() as running:
        yield running


@contextmanager
def published(registry: SchemaRegistry, app: App | None = None) -> Iterator[tuple[App, Harness]]:
    """An app in a harness that reaches the registry."""
    app = app or App("shop")
    settings = {"registry": {"url": registry.url, "timeout": "5s"}}
    with Harness(app, settings=settings) as h:
        yield app, h


def attached(registry: RegistrySettings) -> tuple[App, MemoryBroker]:
    """An app that publishes as outside of a test: nobody waits for the registry where it stands."""
    app, broker = App("shop"), MemoryBroker()
    app.attach(MemoryPublisher(broker, create_topics=True), confirmed, Encoders(registry))
    return app, broker


def values(broker: MemoryBroker) -> list[bytes | None]:
    """What was published."""
    return [record.value() for record in broker.records(TOPIC)]


@pytest.mark.parametrize("value", [ORDER, Order(**ORDER)], ids=["dict", "model"])
def test_avro_is_what_a_serialiser_writes(registry: SchemaRegistry, value: object) -> None:
    """Byte for byte, by the newest schema and by one that is given."""
    expected = avro(registry, ORDER)
    with published(registry) as (app, h):
        app.publish_sync(TOPIC, value, encoder=Avro())
        asyncio.run(app.publish(TOPIC, value, encoder=Avro(AVRO)))
        assert [record.value for record in h.published(TOPIC)] == [expected] * 2


def test_json_is_checked_against_its_schema(registry: SchemaRegistry) -> None:
    """And framed as a serialiser does; what breaks a rule is not written."""
    expected = json_schema(registry, ORDER)
    with published(registry) as (app, h):
        for encoder in (JsonSchema(), JsonSchema(JSON_SCHEMA)):
            app.publish_sync(TOPIC, Order(**ORDER), encoder=encoder)
            with pytest.raises(EncodeError, match=f"{TOPIC}: not a value of its JSON Schema"):
                app.publish_sync(TOPIC, {"id": 0, "buyer": "mina"}, encoder=encoder)
        assert [record.value for record in h.published(TOPIC)] == [expected] * 2


def test_protobuf_takes_the_schema_of_its_class(registry: SchemaRegistry) -> None:
    """Which the registry must have; another type is refused."""
    expected = protobuf(registry, ORDER)
    with published(registry) as (app, h):
        app.publish_sync(TOPIC, OrderMessage(**ORDER), encoder=Protobuf())
        with pytest.raises(ConfigError, match="no message of Protobuf"):
            app.publish_sync(TOPIC, ORDER, encoder=Protobuf())
        with pytest.raises(EncodeError, match="no such schema under subject other-value"):
            app.publish_sync("other", OrderMessage(**ORDER), encoder=Protobuf())
        app.publish_sync("other", OrderMessage(**ORDER), encoder=Protobuf(register=True))
        assert [record.value for record in h.published(TOPIC)] == [expected]
        assert len(h.published("other")) == 1


@pytest.mark.parametrize(
    ("codec", "message"),
    [(Avro, dict), (JsonSchema, dict), (Protobuf, OrderMessage)],
    ids=["avro", "json", "protobuf"],
)
def test_a_handler_reads_what_a_handler_has_published(
    registry: SchemaRegistry, codec: type[Avro | JsonSchema | Protobuf], message: type
) -> None:
    """There and back through a worker, which knows the registry."""
    written = {Avro: avro, JsonSchema: json_schema, Protobuf: protobuf}[codec](registry, ORDER)
    # The schema of the second topic is the same.
    kind = {Avro: "AVRO", JsonSchema: "JSON", Protobuf: "PROTOBUF"}[codec]
    registry.register("copies-value", registry.schema(1)["schema"], kind)  # type: ignore[arg-type]
    app, seen = App("shop"), []

    async def forward(value: object) -> None:
        await app.publish("copies", value, encoder=codec(), key="k")

    def take(value: object) -> None:
        seen.append(value)

    forward.__annotations__["value"] = take.__annotations__["value"] = message
    app.handler(TOPIC, decoder=codec())(forward)
    app.handler("copies", decoder=codec())(take)
    with published(registry, app) as (_, h):
        h.send(TOPIC, written)
        h.settle()
        assert h.errors == []
    assert seen == [message(**ORDER)]


class Colour(StrEnum):
    """One of two."""

    RED = "RED"
    BLUE = "BLUE"


class Rich(BaseModel):
    """What is more than numbers and text."""

    at: datetime
    colour: Colour
    number: UUID
    price: int = Field(alias="priceCents")


RICH = """
{"type": "record", "name": "Rich", "fields": [
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
  {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
  {"name": "priceCents", "type": "int"}]}
"""


def test_a_model_comes_back_as_it_was(registry: SchemaRegistry) -> None:
    """Times, enums, UUIDs and aliases, through Avro's own types."""
    value = Rich(at=datetime(2026, 5, 1, 12, tzinfo=UTC), colour=Colour.BLUE,
                 number=UUID(int=5), priceCents=3)  # fmt: skip
    app, seen = App("shop"), []

    @app.handler(TOPIC, decoder=Avro())
    def take(value: Rich) -> None:
        seen.append(value)

    with published(registry, app) as (_, h):
        app.publish_sync(TOPIC, value, encoder=Avro(RICH, register=True))
        h.settle()
    assert seen == [value]


def test_none_stays_a_tombstone(registry: SchemaRegistry) -> None:
    """Nothing is asked for it."""
    with published(registry) as (app, h):
        app.publish_sync(TOPIC, None, key="k", encoder=Avro())
        assert [record.value for record in h.published(TOPIC)] == [None]
    assert registry.asked == []


def test_the_registry_is_asked_once(registry: SchemaRegistry) -> None:
    """However many are published, also where an encoder is made for each."""
    registry.register(SUBJECT, AVRO)
    app, broker = attached(RegistrySettings(url=registry.url))

    async def many() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                value = {"id": number, "buyer": "mina"}
                group.create_task(app.publish(TOPIC, value, encoder=Avro()))

    asyncio.run(many())
    asyncio.run(many())
    assert registry.asked == [f"GET /subjects/{SUBJECT}/versions/latest"]
    # In the order of the calls, those that waited for the schema included.
    assert values(broker) == [avro(registry, {"id": n, "buyer": "mina"}) for n in range(50)] * 2


def test_a_value_that_does_not_fit_is_an_error_of_its_call(registry: SchemaRegistry) -> None:
    """The first one too, and the next is written."""
    registry.register(SUBJECT, AVRO)
    with published(registry) as (app, h):
        for _ in range(2):
            with pytest.raises(EncodeError, match=f"{TOPIC}: not a value of its Avro") as raised:
                app.publish_sync(TOPIC, {"id": "secret"}, encoder=Avro())
            assert "secret" not in str(raised.value)
        app.publish_sync(TOPIC, ORDER, encoder=Avro())
        assert len(h.published(TOPIC)) == 1


def test_a_schema_that_is_not_there_is_an_error(registry: SchemaRegistry) -> None:
    """No subject, another schema, one that it refuses: none is registered unasked."""
    with published(registry) as (app, h):
        with pytest.raises(EncodeError, match="has no subject") as raised:
            app.publish_sync(TOPIC, ORDER, encoder=Avro())
        assert raised.value.error_type == "UnknownSchema"
        registry.register(SUBJECT, RICH)
        with pytest.raises(EncodeError, match="no such schema"):
            app.publish_sync(TOPIC, ORDER, encoder=Avro(AVRO))
        registry.fault = 409
        with pytest.raises(EncodeError, match="HTTP 409") as raised:
            app.publish_sync(TOPIC, ORDER, encoder=Avro(AVRO, register=True))
        assert raised.value.error_type == "RefusedSchema"
        registry.fault = None
        app.publish_sync(TOPIC, ORDER, encoder=Avro(AVRO, register=True))
        assert len(h.published(TOPIC)) == 1


def test_a_registry_that_is_away_fails_all_that_wait(registry: SchemaRegistry) -> None:
    """With one question, and a typed error; once it is back, the next call succeeds."""
    registry.register(SUBJECT, AVRO)
    registry.fault = 503
    app, broker = attached(RegistrySettings(url=registry.url))

    async def many() -> list[BaseException | None]:
        calls = [app.publish(TOPIC, ORDER, encoder=Avro()) for _ in range(20)]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(many())
    assert {type(answer) for answer in answers} == {PublishFailed}
    assert "HTTP 503" in str(answers[0])
    assert registry.url in str(answers[0])
    assert len(registry.asked) < 5
    registry.fault = None
    app.publish_sync(TOPIC, ORDER, encoder=Avro())
    assert len(values(broker)) == 1


def test_a_registry_that_is_away_is_an_error_in_a_harness_too(registry: SchemaRegistry) -> None:
    """There the call itself waits for it."""
    registry.register(SUBJECT, AVRO)
    registry.fault = 503
    with published(registry) as (app, h):
        with pytest.raises(PublishFailed, match="HTTP 503"):
            app.publish_sync(TOPIC, ORDER, encoder=Avro())
        registry.fault = None
        app.publish_sync(TOPIC, ORDER, encoder=Avro())
        assert len(h.published(TOPIC)) == 1


class Slow:
    """An encoder whose first question takes until it is told."""

    def __init__(self) -> None:
        self.answer = threading.Event()

    def encoding(self, registry: RegistrySettings, topic: str, value_type: type) -> Slow:
        """Itself."""
        return self

    def encode(self, value: object) -> bytes:
        """Wait, then encode."""
        assert self.answer.wait(10)
        return str(value).encode()


def test_an_event_loop_does_not_wait_for_the_registry() -> None:
    """Nor do others get in front of what waits."""
    slow = Slow()
    app, broker = attached(RegistrySettings())

    async def main() -> None:
        calls = [asyncio.create_task(app.publish(TOPIC, n, encoder=slow)) for n in range(5)]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        slow.answer.set()
        await asyncio.gather(*calls)

    asyncio.run(main())
    assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_end_waits_for_what_waits_for_its_schema() -> None:
    """Up to its bound."""
    slow, sent = Slow(), list[bytes]()
    encoders = Encoders(RegistrySettings())
    encoders.encode(slow, TOPIC, 1, sent.append, print)
    encoders.close(0.01)
    assert sent == []
    threading.Timer(0.05, slow.answer.set).start()
    encoders.close(10)
    assert sent == [b"1"]


def test_what_can_not_work_is_refused(registry: SchemaRegistry) -> None:
    """With the field, the reason and what to do."""
    with Harness(app := App("shop")), pytest.raises(ConfigError, match=r"registry\.url"):
        app.publish_sync(TOPIC, ORDER, encoder=Avro())
    with published(registry) as (app, _), pytest.raises(ConfigError, match="schema="):
        app.publish_sync(TOPIC, ORDER, encoder=Avro('{"type": "nothing"}'))
    with pytest.raises(ConfigError, match="there is no schema"):
        Avro(register=True)
    with pytest.raises(ConfigError, match="leave it out of decoder="):
        Avro(AVRO).bind(Order, "value")
    with pytest.raises(ConfigError, match="leave it out of decoder="):
        Protobuf(register=True).bind(OrderMessage, "value")
