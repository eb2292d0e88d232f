"""Values as confluent's own serialisers write them, through a registry that runs in the test."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pydantic import BaseModel

from ackfloor.testing import SchemaRegistry

TOPIC = "orders"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "buyer", "type": "string"}],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}, "buyer": {"type": "string"}},
        "required": ["id", "buyer"],
    }
)


class Order(BaseModel):
    """What handlers take."""

    id: int
    buyer: str


def _order_message() -> Any:
    """What protoc would generate of `message Order { int64 id = 1; string buyer = 2; }`."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="buyer", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


OrderMessage: Any = _order_message()
_CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)


def avro(registry: SchemaRegistry, order: dict[str, Any], schema: str = AVRO) -> bytes:
    """Avro, by confluent's serialiser."""
    return _bytes(AvroSerializer(_client(registry), schema)(order, _CONTEXT))


def json_schema(registry: SchemaRegistry, order: dict[str, Any]) -> bytes:
    """JSON with a schema, by confluent's serialiser."""
    return _bytes(JSONSerializer(JSON_SCHEMA, _client(registry))(order, _CONTEXT))


def protobuf(registry: SchemaRegistry, order: dict[str, Any]) -> bytes:
    """Protobuf, by confluent's serialiser."""
    serialize = ProtobufSerializer(OrderMessage, _client(registry))
    return _bytes(serialize(OrderMessage(**order), _CONTEXT))


def framed(number: int, order: dict[str, Any], schema: str = AVRO) -> bytes:
    """Avro behind the number of any schema, without a registry."""
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(json.loads(schema)), order)
    return struct.pack(">bI", 0, number) + body.getvalue()


def _client(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def _bytes(written: object) -> bytes:
    assert isinstance(written, bytes)
    return written
