"""Values that were written through a schema registry: decoded, refused, or left open."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.serialization import SerializationContext

from ackfloor import App, ConfigError, DecodeError, DecoderUnavailable, MissingExtra
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import Record
from ackfloor.declare.codec import make_decoder
from ackfloor.kafka.registry.schema_decoder import RegistryDecoder
from ackfloor.kafka.registry.schema_lookups import SchemaLookups
from ackfloor.schemas import Avro, JsonSchema, Protobuf
from ackfloor.settings import RegistrySettings
from ackfloor.testing import Harness, SchemaRegistry
from tests.framework.kafka.schemas_written import (
    AVRO,
    TOPIC,
    Order,
    OrderMessage,
    avro,
    framed,
    json_schema,
    protobuf,
)
from tests.framework.stored import Stored

ORDER = {"id": 7, "buyer": "mina"}
PATIENCE_S = 120.0


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """A registry of the test's own."""
    with SchemaRegistry() as running:
        yield running


def decoder_of(
    registry: SchemaRegistry,
    kind: Avro | JsonSchema | Protobuf,
    hint: object = Order,
    *,
    wait: str = "60s",
) -> object:
    """The decoding of a handler, as a worker puts it together."""
    settings = RegistrySettings(url=registry.url, timeout="60s", wait=wait)
    return make_decoder(hint, False, decoder=kind.reaching(settings, None))


def decoded(decode: object, data: bytes, **more: object) -> object:
    """What a record decodes to."""
    record: Record = Stored(data, **more)  # type: ignore[arg-type]
    return decode(record)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("write", "kind", "hint", "expected"),
    [
        (avro, Avro(), Order, Order(**ORDER)),
        (avro, Avro(), dict[str, object], ORDER),
        (json_schema, JsonSchema(), Order, Order(**ORDER)),
        (json_schema, JsonSchema(), Order | None, Order(**ORDER)),
        (protobuf, Protobuf(), OrderMessage, OrderMessage(**ORDER)),
    ],
)
def test_what_confluents_serialisers_write_is_read(
    registry: SchemaRegistry, write: object, kind: object, hint: object, expected: object
) -> None:
    """All three formats become what the handler takes, with one question for many records."""
    data = write(registry, ORDER)  # type: ignore[operator]
    registry.asked.clear()
    decode = decoder_of(registry, kind, hint)  # type: ignore[arg-type]
    assert [decoded(decode, data) for _ in range(50)] == [expected] * 50
    assert registry.asked == ["GET /schemas/ids/1"]


def test_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    """A named type of another subject is asked for, once."""
    registry.register(
        "buyer", '{"type": "record", "name": "Buyer", "fields": [{"name": "n", "type": "string"}]}'
    )
    outer = json.loads(AVRO)
    outer["fields"][1]["type"] = "Buyer"
    reference = {"name": "Buyer", "subject": "buyer", "version": 1}
    number = registry.register("orders-value", json.dumps(outer), references=(reference,))
    decode = decoder_of(registry, Avro(), dict[str, object])
    data = struct.pack(">bI", 0, number) + b"\x0e\x08mina"
    for _ in range(3):
        assert decoded(decode, data) == {"id": 7, "buyer": {"n": "mina"}}
    assert registry.asked == [f"GET /schemas/ids/{number}", "GET /subjects/buyer/versions/1"]


def test_a_schema_named_in_a_header(registry: SchemaRegistry) -> None:
    """Newer serialisers write the schema's name beside the value, which is bare then."""
    number = registry.register("orders-value", AVRO)
    guid = UUID(registry.schema(number)["guid"])
    head = [("trace", b"1"), ("__value_schema_id", b"\x01" + guid.bytes)]
    decode = decoder_of(registry, Avro())
    bare = framed(number, ORDER)[5:]
    assert decoded(decode, bare, head=head) == Order(**ORDER)
    assert registry.asked == [f"GET /schemas/guids/{guid}"]


def test_a_retry_topic_has_the_subject_of_its_source(registry: SchemaRegistry) -> None:
    """So a record that comes again needs no new question."""
    data = avro(registry, ORDER)
    registry.asked.clear()
    decode = decoder_of(registry, Avro())
    for topic in (TOPIC, f"{TOPIC}--billing--retry-5s"):
        assert decoded(decode, data, of=topic) == Order(**ORDER)
    assert registry.asked == ["GET /schemas/ids/1"]


@pytest.mark.parametrize(
    ("topic", "source"),
    [
        ("orders-eu-1", "orders-eu-1"),
        ("orders-eu-1--billing-eu--retry-90s", "orders-eu-1"),
        # Somebody else's: a minute is never written so, and this has no group.
        ("orders-eu-1--billing-eu--retry-60s", "orders-eu-1--billing-eu--retry-60s"),
        ("orders--eu", "orders--eu"),
    ],
)
def test_the_subject_is_that_of_the_topic_which_a_retry_topic_belongs_to(
    registry: SchemaRegistry, topic: str, source: str
) -> None:
    """Whatever dashes are in its name; and another's topic belongs to none."""
    seen = []

    def deserialize(data: bytes, context: SerializationContext) -> object:
        seen.append(context.topic)
        return data

    decoder = RegistryDecoder("Avro", deserialize, None, 60.0)
    assert decoder.decode(b"\x00\x00\x00\x00\x01v", Stored(b"", topic)) == b"\x00\x00\x00\x00\x01v"
    assert set(seen) == {source}


@pytest.mark.parametrize(
    "name", ["ssl_ca_location", "ssl_certificate_location", "ssl_key_location"]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """Before a worker starts, by the setting that names it."""
    paths = dict.fromkeys(["ssl_ca_location", "ssl_certificate_location", "ssl_key_location"])
    for each in paths:
        paths[each] = str(tmp_path / each)
        (tmp_path / each).write_text("no PEM")
    (tmp_path / name).unlink()
    settings = RegistrySettings(url="https://127.0.0.1:1", **paths)
    with pytest.raises(ConfigError, match="name a PEM file that can be read") as caught:
        make_decoder(Order, False, decoder=Avro().reaching(settings, None))
    assert (caught.value.field, caught.value.value) == (f"registry.{name}", paths[name])


def test_an_unknown_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    """A storm of such records is no storm of questions."""
    decode = decoder_of(registry, Avro())
    for _ in range(20):
        with pytest.raises(DecodeError, match="has no schema 99") as caught:
            decoded(decode, framed(99, ORDER))
        assert caught.value.error_type == "UnknownSchema"
    assert registry.asked == ["GET /schemas/ids/99"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no schema id"),
        (b"\x00\x00", "no schema id"),
        (b'{"id": 7}', "no schema id"),
        (b"\x00\xff\xff\xff\xff\x0e", "no registry has a schema 4294967295"),
    ],
)
def test_bytes_without_a_schema_ask_for_nothing(
    registry: SchemaRegistry, data: bytes, told: str
) -> None:
    """What was not written through a registry is refused at once."""
    with pytest.raises(DecodeError, match=told):
        decoded(decoder_of(registry, Avro()), data)
    assert registry.asked == []


def test_errors_say_nothing_of_the_payload(registry: SchemaRegistry) -> None:
    """They are written to headers and logs: rules and types are named, values are not."""
    secret = "card-4111-1111"
    cut = avro(registry, {"id": 7, "buyer": secret})[:-3]
    wrong = json_schema(registry, {"id": 7, "buyer": secret}).replace(b'"id":7', b'"id":0')
    wrong_type = framed(1, {"id": 7, "buyer": secret})
    for kind, data, hint, told in (
        (Avro(), cut, Order, "not a valid Avro value of schema 1"),
        (JsonSchema(), wrong, Order, "at properties/id/minimum"),
        (Avro(), wrong_type, dict[str, int], "not a valid"),
        (JsonSchema(), b"\x00\x00\x00\x00\x02{" + secret.encode(), Order, "JSONDecodeError"),
    ):
        with pytest.raises(DecodeError) as caught:
            decoded(decoder_of(registry, kind, hint), data)  # type: ignore[arg-type]
        assert told in str(caught.value)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("fault", [401, 403, 404, 429, 500, 503])
def test_a_registry_that_does_not_work_is_away(registry: SchemaRegistry, fault: int) -> None:
    """Whatever it answers but "there is no such schema", the record is not to blame."""
    data = avro(registry, ORDER)
    registry.fault = fault
    decode = decoder_of(registry, Avro())
    with pytest.raises(DecoderUnavailable, match=f"HTTP {fault} for schema 1"):
        decoded(decode, data)
    registry.fault = None
    assert decoded(decode, data) == Order(**ORDER)


def test_no_registry_at_the_address_is_away(registry: SchemaRegistry) -> None:
    """A refused connection names the address; what is known already goes on."""
    data = avro(registry, ORDER)
    decode = decoder_of(registry, Avro())
    assert decoded(decode, data) == Order(**ORDER)
    url = registry.url
    registry.close()
    assert decoded(decode, data) == Order(**ORDER)
    with pytest.raises(DecoderUnavailable, match=url):
        decoded(decode, framed(2, ORDER))


def test_credentials_go_along_and_are_never_shown() -> None:
    """The right ones are let in; wrong ones leave the record open, and no message has them."""
    with SchemaRegistry(username="reader", password="swordfish") as registry:
        number = registry.register("orders-value", AVRO)
        for password, let_in in (("swordfish", True), ("wrong-guess", False)):
            settings = RegistrySettings(
                url=registry.url, username="reader", password=password, wait="60s"
            )
            kind = Avro().reaching(settings, None)
            decode = make_decoder(Order, False, decoder=kind)
            if let_in:
                assert decoded(decode, framed(number, ORDER)) == Order(**ORDER)
            else:
                with pytest.raises(DecoderUnavailable, match="HTTP 401") as caught:
                    decoded(decode, framed(number, ORDER))
                assert password not in str(caught.value)
            assert password not in f"{kind!r} {settings!r} {settings}"


def test_many_deliveries_share_one_question(registry: SchemaRegistry) -> None:
    """Threads that meet a new schema at the same time wait for the same answer."""
    data = avro(registry, ORDER)
    registry.asked.clear()
    decode = decoder_of(registry, Avro())
    together = threading.Barrier(16)

    def one(_number: int) -> object:
        together.wait(PATIENCE_S)
        return decoded(decode, data)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(16))) == [Order(**ORDER)] * 16
    assert registry.asked == ["GET /schemas/ids/1"]


def test_nobody_waits_long_for_a_registry_that_hangs() -> None:
    """The deliveries are told that it is away; its answer, when it comes, is used."""
    lookups = SchemaLookups(wait_s=0.05)
    answer, asked = threading.Event(), []

    def hang() -> None:
        asked.append(1)
        assert answer.wait(PATIENCE_S)

    for _ in range(10):
        with pytest.raises(DecoderUnavailable, match="has not answered yet"):
            lookups.require(1, hang)
    answer.set()
    _until_known(lookups, 1)
    lookups.require(1, pytest.fail)
    assert asked == [1]


def _until_known(lookups: SchemaLookups, schema: int) -> None:
    """Wait until the lookup that is under way has ended."""
    _, under_way = lookups._under_way.get(schema, (0.0, None))
    if under_way is not None:
        under_way.result(PATIENCE_S)


def test_a_new_schema_waits_no_longer_while_another_hangs() -> None:
    """The wait counts from the oldest question: many new schemas don't add their waits up."""
    lookups = SchemaLookups(wait_s=0.2)
    answer = threading.Event()
    try:
        with pytest.raises(DecoderUnavailable):
            lookups.require(1, lambda: answer.wait(PATIENCE_S))
        lookups._wait_s = PATIENCE_S / 2
        first_s, under_way = lookups._under_way[1]
        lookups._under_way[1] = (first_s - PATIENCE_S, under_way)
        with pytest.raises(DecoderUnavailable):
            lookups.require(2, lambda: answer.wait(PATIENCE_S))
    finally:
        answer.set()


def test_a_delivery_waits_within_its_deadline() -> None:
    """Half of the consume timeout at most: a registry that hangs must not park records."""
    settings = RegistrySettings(url="http://localhost:1", wait="10s")
    assert Avro().reaching(settings, 3.0)._wait_s == 1.5
    assert Avro().reaching(settings, None)._wait_s == 10.0


def test_it_survives_the_way_into_another_process(registry: SchemaRegistry) -> None:
    """Process handlers get their decoder as a pickle."""
    data = avro(registry, ORDER)
    kind = Avro().reaching(RegistrySettings(url=registry.url, wait="60s"), None)
    there = pickle.loads(pickle.dumps(kind))
    assert decoded(make_decoder(Order, False, decoder=there), data) == Order(**ORDER)


# In a worker.


def shop(kind: Avro, hint: type = Order, **options: object) -> tuple[App, list[object]]:
    """An app that keeps what it gets."""
    app, got = App(group="billing"), []

    async def bill(order: Order) -> None:
        got.append(order)

    async def bill_all(orders: list[Order]) -> None:
        got.append(orders)

    function = bill_all if "batch" in options else bill
    app.handler(TOPIC, decoder=kind, **options)(function)  # type: ignore[call-overload]
    return app, got


def test_in_a_worker(registry: SchemaRegistry) -> None:
    """Decoded, dead-lettered byte for byte, and held while the registry is away."""
    app, got = shop(Avro())
    with Harness(app, settings={"registry": {"url": registry.url}}) as h:
        h.send(TOPIC, avro(registry, ORDER))
        assert got == [Order(**ORDER)]
        unknown = framed(99, ORDER)
        h.send(TOPIC, unknown)
        [letter] = h.dlq(TOPIC)
        assert (letter.value, letter.reason, letter.error_type) == (
            unknown,
            Reason.DECODE,
            "UnknownSchema",
        )
        number = registry.register("orders-value", AVRO.replace("long", "int"))
        registry.fault = 503
        h.send(TOPIC, framed(number, ORDER))
        h.advance("1h")
        assert (len(got), h.floor(TOPIC), len(h.dlq(TOPIC)), h.parked(TOPIC)) == (1, 2, 1, [])
        registry.fault = None
        h.advance("5s")
        assert (len(got), h.floor(TOPIC), len(h.dlq(TOPIC)), h.errors[1:]) == (2, 3, 1, [])


def test_in_a_batch(registry: SchemaRegistry) -> None:
    """One record of an unknown schema ends alone; a registry that is away holds all of them."""
    app, got = shop(Avro(), batch=3, batch_wait="1s")
    with Harness(app, settings={"registry": {"url": registry.url}}) as h:
        good = avro(registry, ORDER)
        registry.fault = 503
        for data in (good, framed(99, ORDER), good):
            h.send(TOPIC, data, settle=False)
        h.settle()
        h.advance("1m")
        assert (got, h.dlq(TOPIC), h.floor(TOPIC)) == ([], [], 0)
        registry.fault = None
        h.advance("10s")
        assert [order for orders in got for order in orders] == [Order(**ORDER)] * 2  # type: ignore[attr-defined]
        assert len(h.dlq(TOPIC)) == 1


# What is refused at the start.


def test_no_registry_is_named() -> None:
    """The error says which setting is missing, and for whom."""
    app, _ = shop(Avro())
    with pytest.raises(ConfigError, match=r"registry\.url.*handlers\.bill\.order.*_REGISTRY__URL"):
        Harness(app).__enter__()


def test_protobuf_takes_generated_classes() -> None:
    """Any other type is refused, with what to take instead."""
    kind = Protobuf().reaching(RegistrySettings(url="http://localhost:1"), None)
    with pytest.raises(ConfigError, match="no message of Protobuf; take a class that protoc"):
        make_decoder(Order, False, decoder=kind)


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the line that installs it."""
    monkeypatch.delitem(sys.modules, "ackfloor.kafka.registry.schema_decoder", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    kind = Avro().reaching(RegistrySettings(url="http://localhost:1"), None)
    with pytest.raises(MissingExtra, match=r"pip install 'ackfloor\[registry\]'"):
        make_decoder(Order, False, decoder=kind)
