"""Values beside those of confluent-kafka's serializers, which others have written: both ways."""

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from grpc_tools import protoc

from barnabas.registry.avro import AvroSchema
from barnabas.registry.client import Reference, SchemaRegistry
from barnabas.registry.json_schema import JsonSchema
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.reading import Decoder, Encoder

AVRO = json.dumps({
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal",
                                    "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
    ],
})  # fmt: skip
ORDER = {
    "id": "grün",
    "amount": Decimal("12.30"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "tags": ["a", ""],
    "counts": {"x": 1 << 40},
    "state": "PAID",
}

PROTO = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "foreign_money.proto";
message Other { int32 x = 1; }
message Order {
  message Line { string item = 1; uint32 count = 2; }
  string id = 1;
  repeated Line lines = 2;
  map<string, sint64> counts = 3;
  optional int32 discount = 4;
  google.protobuf.Timestamp at = 5;
  Money total = 6;
}
"""
MONEY = """\
syntax = "proto3";
package shop;
message Money { sint64 cents = 1; }
"""
JSON = json.dumps({
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "amount": {"type": "integer", "minimum": 0}},
    "required": ["id"],
})  # fmt: skip


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def ours(registry: SchemaRegistry, topic: str, codec: str, value: bytes) -> Any:
    return Decoder(registry, codec, f"{topic}-value").decode(value)[1]


def test_avro_goes_both_ways(client, registry, topic):
    theirs = AvroSerializer(client, AVRO)(ORDER, context(topic))
    assert theirs is not None
    found = registry.version(f"{topic}-value")
    reader = AvroSchema(found.schema)
    assert Decoder(registry, "avro", found.subject, reader).decode(theirs)[1] == ORDER
    encoder = Encoder(reader, found.subject, found.id)
    assert encoder.encode(ORDER) == theirs
    assert AvroDeserializer(client, AVRO)(encoder.encode(ORDER), context(topic)) == ORDER


def test_avro_with_references_goes_both_ways(client, registry, topic):
    money = (
        '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    )
    text = json.dumps({
        "type": "record", "name": "shop.Bill",
        "fields": [{"name": "total", "type": "shop.Money"}],
    })  # fmt: skip
    client.register_schema(f"{topic}-money", TheirSchema(money, "AVRO"))
    schema = TheirSchema(text, "AVRO", [SchemaReference("shop.Money", f"{topic}-money", 1)])
    theirs = AvroSerializer(client, schema)({"total": {"cents": 5}}, context(topic))
    assert theirs is not None
    assert ours(registry, topic, "avro", theirs) == {"total": {"cents": 5}}
    reference = Reference("shop.Money", f"{topic}-money", 1)
    own = registry.with_references("AVRO", text, [reference])
    number = registry.register(f"{topic}-value", own)
    assert Encoder(AvroSchema(own), f"{topic}-value", number).encode(
        {"total": {"cents": 5}}
    ) == theirs  # fmt: skip


def test_json_schema_goes_both_ways(client, registry, topic):
    order = {"id": "grün", "amount": 3}
    theirs = JSONSerializer(JSON, client)(order, context(topic))
    assert theirs is not None
    assert ours(registry, topic, "json-schema", theirs) == order
    found = registry.version(f"{topic}-value")
    encoder = Encoder(JsonSchema(found.schema), found.subject, found.id)
    value = encoder.encode(order)
    assert value[:5] == theirs[:5]
    assert JSONDeserializer(JSON, schema_registry_client=client)(value, context(topic)) == order


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The classes that protoc makes for programs, as others use them."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "foreign_order.proto").write_text(PROTO)
    (folder / "foreign_money.proto").write_text(MONEY)
    well_known = files("grpc_tools") / "_proto"
    names = ("foreign_order.proto", "foreign_money.proto")
    command = ["", f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", *names]
    assert protoc.main(command) == 0
    return _imported(folder)


def _imported(folder: Path) -> ModuleType:
    sys.path.insert(0, str(folder))
    try:
        import foreign_order_pb2  # type: ignore[import-not-found]

        module: ModuleType = foreign_order_pb2
        return module
    finally:
        sys.path.remove(str(folder))


CONF = {"use.deprecated.format": False}


@pytest.mark.parametrize("name", ["Other", "Order", "Line"])
def test_protobuf_goes_both_ways(client, registry, topic, generated, name):
    kind = generated.Order.Line if name == "Line" else getattr(generated, name)
    message = kind()
    match name:
        case "Other":
            message.x = -7
        case "Line":
            message.item, message.count = "pen", 1 << 31
        case "Order":
            message.id, message.discount, message.counts["x"] = "grün", 0, -1
            message.lines.add(item="pen", count=2)
            message.at.FromSeconds(1_767_268_800)
            message.total.cents = -5
    theirs = ProtobufSerializer(kind, client, CONF)(message, context(topic))
    assert theirs is not None
    found = ours(registry, topic, "protobuf", theirs)
    assert found.SerializeToString() == message.SerializeToString()
    version = registry.version(f"{topic}-value")
    schema = ProtobufSchema(version.schema, kind.DESCRIPTOR.full_name)
    encoder = Encoder(schema, version.subject, version.id)
    value = encoder.encode(schema.from_json(schema.to_json(found)))
    assert value[:5] == theirs[:5]
    back = ProtobufDeserializer(kind, CONF, client)(value, context(topic))
    assert back == message


def test_indexes_of_messages_are_those_of_the_serializer(client, topic, generated):
    frames = {
        kind.DESCRIPTOR.name: ProtobufSerializer(kind, client, CONF)(kind(), context(topic))
        for kind in (generated.Other, generated.Order, generated.Order.Line)
    }
    assert {name: each and each[5:] for name, each in frames.items()} == {
        "Other": b"\0",
        "Order": b"\2\2",
        "Line": b"\4\2\0",
    }
