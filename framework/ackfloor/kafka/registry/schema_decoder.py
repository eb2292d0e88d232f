"""Decoders for values written by schema registry serialisers: Avro, Protobuf and JSON Schema.

Such a value begins with the id of its schema (five bytes) or its GUID (seventeen), or a header has
it. The registry is asked once for each new schema, not for each record: see `schema_lookups`.
Errors carry no payload: they end up in headers and logs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry import topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.record import Record
from ackfloor.declare.codec import shaper, type_name
from ackfloor.errors import ConfigError, DecodeError, DecoderUnavailable
from ackfloor.kafka.registry.schema_client import SchemaClient
from ackfloor.kafka.registry.schema_lookups import SchemaLookups
from ackfloor.settings import RegistrySettings

Deserialize = Callable[[bytes, SerializationContext], object]
Shape = Callable[[object], object]

HEADER = "__value_schema_id"
# The subject of a value is its topic's, without a question to the registry.
_SUBJECTS = {"subject.name.strategy": topic_subject_name_strategy}
# Registries count in signed numbers of 32 bits, and answer a larger one as if it were no question.
_LARGEST = 2**31 - 1


class RegistryDecoder:
    """Decodes the values of one handler.

    Args:
        format_name: for messages.
        deserialize: confluent's deserialiser of the format.
        shape: converts the deserialised value to the handler's type; None if it has that type.
        wait_s: how long a delivery waits for a schema that is not known yet.
    """

    def __init__(
        self, format_name: str, deserialize: Deserialize, shape: Shape | None, wait_s: float
    ) -> None:
        self._format = format_name
        self._deserialize = deserialize
        self._shape = shape
        self._lookups = SchemaLookups(wait_s)

    def decode(self, data: bytes, record: Record) -> object:
        """The value of these bytes.

        Raises:
            DecodeError: there is no schema id, the registry does not know the schema, or the value
                does not fit the schema or the handler's type.
            DecoderUnavailable: the registry is away.
        """
        headers = record.headers()
        schema = _schema_of(data, headers)
        # A retry topic's values have the subject of the topic they came from.
        topic = _source_of(record.topic())
        context = SerializationContext(topic, MessageField.VALUE, [*(headers or ())])
        self._lookups.require((topic, schema), lambda: self._deserialize(data, context))
        plain = self._plain(data, context, schema)
        return plain if self._shape is None else self._shape(plain)

    def _plain(self, data: bytes, context: SerializationContext, schema: bytes) -> object:
        try:
            return self._deserialize(data, context)
        except (DecodeError, DecoderUnavailable):
            raise
        except Exception as exc:  # noqa: BLE001 -- whatever the formats' packages have
            # Without the exception's text, which may quote the payload.
            kind = type(exc).__name__
            text = f"not a valid {self._format} value of schema {_named(schema)}: {kind}"
            raise DecodeError(f"{text}{_place(exc)}", error_type=kind) from None


@lru_cache(maxsize=4_096)
def _source_of(topic: str) -> str:
    """The topic that a retry topic's records came from, or the topic itself."""
    parsed = parse_topic(topic)
    return topic if parsed is None else parsed.topic


def _schema_of(data: bytes, headers: Any) -> bytes:
    """The bytes that identify the schema: five with its id, or seventeen with its GUID."""
    found = next((value for name, value in headers or () if name == HEADER), None)
    named = data if found is None else found
    schema = named[:5] if named[:1] == b"\x00" else named[:17] if named[:1] == b"\x01" else b""
    if len(schema) not in (5, 17):
        raise DecodeError("no schema id in front of the value", error_type="NoSchemaId")
    if len(schema) == 5 and int.from_bytes(schema[1:]) > _LARGEST:
        text = f"no registry has a schema {_named(schema)}"
        raise DecodeError(text, error_type="UnknownSchema")
    return schema


def _named(schema: bytes) -> str:
    if len(schema) == 5:
        return str(int.from_bytes(schema[1:]))
    return str(UUID(bytes=schema[1:]))


def _place(exc: BaseException) -> str:
    """The path of the JSON schema rule that a value breaks."""
    path = getattr(exc.__context__, "absolute_schema_path", None)
    return f" at {'/'.join(map(str, path))}" if path else ""


def avro_decoder(
    settings: RegistrySettings, wait_s: float, value_type: Any, field: str
) -> RegistryDecoder:
    """Decodes Avro; pydantic makes the handler's type from the fields."""
    deserialize = AvroDeserializer(SchemaClient(settings), conf=_SUBJECTS)
    return RegistryDecoder("Avro", deserialize, shaper(value_type, field), wait_s)


def json_schema_decoder(
    settings: RegistrySettings, wait_s: float, value_type: Any, field: str
) -> RegistryDecoder:
    """Decodes JSON that is valid under its schema to the handler's type."""
    client = SchemaClient(settings)
    deserialize = JSONDeserializer(None, schema_registry_client=client, conf=_SUBJECTS)
    return RegistryDecoder("JSON Schema", deserialize, shaper(value_type, field), wait_s)


def protobuf_decoder(
    settings: RegistrySettings, wait_s: float, value_type: Any, field: str
) -> RegistryDecoder:
    """Decodes Protobuf to the generated class that the handler takes.

    Raises:
        ConfigError: the handler's type is no such class.
    """
    if not hasattr(value_type, "DESCRIPTOR"):
        why, fix = "no message of Protobuf", "take a class that protoc has generated"
        raise ConfigError(field, type_name(value_type), why, fix)
    deserialize = ProtobufDeserializer(value_type, _SUBJECTS, SchemaClient(settings))
    return RegistryDecoder("Protobuf", deserialize, None, wait_s)
