"""Encoders that write values as schema registry serialisers do: Avro, Protobuf and JSON Schema.

A value gets its schema's id in front (five bytes), which `schema_decoder` reads. One serialiser is
made for each topic: it keeps a single id, whichever subject that belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ackfloor.declare.codec import type_name
from ackfloor.declare.encoders import plain, plain_json
from ackfloor.errors import ConfigError, EncodeError, PublishFailed
from ackfloor.kafka.registry.schema_client import SchemaClient
from ackfloor.settings import RegistrySettings

Serialize = Callable[[Any, SerializationContext], "bytes | None"]


class RegistryEncoder:
    """Encodes the values of one topic.

    Args:
        format_name: for messages.
        serialize: confluent's serialiser of the format.
        topic: whose values they are.
    """

    def __init__(self, format_name: str, serialize: Serialize, topic: str) -> None:
        self._format = format_name
        self._serialize = serialize
        self._topic = topic

    def encode(self, value: object) -> bytes:
        """The bytes of a value.

        Raises:
            EncodeError: the value does not fit the schema, or the registry has no such schema.
            PublishFailed: the registry is away; nothing was sent.
        """
        context = SerializationContext(self._topic, MessageField.VALUE)
        try:
            data = self._serialize(value, context)
        except (EncodeError, PublishFailed):
            raise
        except Exception as exc:
            kind = type(exc).__name__
            text = f"{self._topic}: not a value of its {self._format} schema: {kind}"
            raise EncodeError(text, error_type=kind) from exc
        assert data is not None, "a null value is not encoded"
        return data


def avro_encoder(
    settings: RegistrySettings, topic: str, schema: str | None, register: bool
) -> RegistryEncoder:
    """Encodes dicts, and the fields of pydantic models, as Avro."""
    client, conf = _client(settings), _how(register, newest=schema is None)
    return RegistryEncoder(
        "Avro", AvroSerializer(client, schema, lambda value, _: plain(value), conf), topic
    )


def json_schema_encoder(
    settings: RegistrySettings, topic: str, schema: str | None, register: bool
) -> RegistryEncoder:
    """Encodes what JSON can hold, if it is valid under its schema."""
    client, conf = _client(settings), _how(register, newest=schema is None)
    serialize = JSONSerializer(schema, client, lambda value, _: plain_json(value), conf)
    return RegistryEncoder("JSON Schema", serialize, topic)


def protobuf_encoder(
    settings: RegistrySettings, topic: str, value_type: type, register: bool
) -> RegistryEncoder:
    """Encodes the messages of one class that protoc has generated, by the schema of that class.

    Raises:
        ConfigError: the values are no such messages.
    """
    if not hasattr(value_type, "DESCRIPTOR"):
        why, fix = "no message of Protobuf", "give one of a class that protoc has generated"
        raise ConfigError("value", type_name(value_type), why, fix)
    kind: Any = value_type
    conf = _how(register, newest=False)
    return RegistryEncoder("Protobuf", ProtobufSerializer(kind, _client(settings), conf), topic)


def _client(settings: RegistrySettings) -> SchemaClient:
    return SchemaClient(settings, wrong=EncodeError, away=PublishFailed)


def _how(register: bool, *, newest: bool) -> dict[str, Any]:
    """Whether a serialiser takes the newest schema, or looks its own up, or registers that."""
    return {
        "auto.register.schemas": register,
        "use.latest.version": newest,
        # The subject of a value is its topic's, without a question to the registry.
        "subject.name.strategy": topic_subject_name_strategy,
    }
