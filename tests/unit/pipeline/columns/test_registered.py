"""Values with a schema id as columns: what evolution changes, and what makes a record bad."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.pipeline.columns.registered import decode, encode, record_of
from barnabas.registry.avro import AvroSchema
from barnabas.registry.client import SchemaRegistry, SchemaText
from barnabas.registry.errors import BadRecord, BadSchema, RegistryAway
from barnabas.registry.json_schema import JsonSchema
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.settings import RegistrySettings
from tests.support.registry import FakeRegistry, fake_registry

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        yield found


def avro(kind: Any, **more: Any) -> SchemaText:
    fields = [{"name": "x", "type": kind, **more}]
    return SchemaText("AVRO", json.dumps({"type": "record", "name": "A", "fields": fields}))


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def read(fake: FakeRegistry, writer: SchemaText, reader: SchemaText, *values: Any) -> list[Any]:
    """Return `x` of each value, or its reason."""
    registry = SchemaRegistry(RegistrySettings((fake.url,), retry_s=0.2))
    number = registry.register("s", writer)
    encoder = Encoder(AvroSchema(writer), "s", number)
    framed = pa.array([encoder.encode({"x": each}) for each in values], pa.binary())
    usable = AvroSchema(reader)
    found = decode(Decoder(registry, "avro", "s", usable), record_of(usable), framed)
    return [each["reason"] or each["value"]["x"] for each in found.to_pylist()]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "found"),
    [
        ("int", "long", 1, 1),
        ("int", "double", 1, 1.0),
        ("string", "bytes", "a", b"a"),
        ("long", ["null", "long"], 1, 1),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), NOON, NOON),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), NOON, NOON),
        ("long", logical("long", "timestamp-millis"), 1_767_268_800_000, NOON),
        ("long", logical("long", "timestamp-micros"), 1_767_268_800_000_000, NOON),
        ("int", logical("int", "date"), 20454, NOON.date()),
        ("int", logical("int", "time-millis"), 5, 5),
        (
            logical("bytes", "decimal", precision=10, scale=2),
            logical("bytes", "decimal", precision=10, scale=4),
            Decimal("1.50"),
            Decimal("1.5000"),
        ),
        ("bytes", logical("bytes", "decimal", precision=10, scale=2), b"\xff", Decimal("-0.01")),
        (logical("string", "uuid"), "string", "12345678-1234-5678-1234-567812345678", ...),
    ],
)
def test_an_evolved_field_means_what_its_writer_meant(fake, writer, reader, value, found):
    expected = value if found is ... else found
    assert read(fake, avro(writer), avro(reader), value) == [expected]


def test_a_value_that_the_column_cannot_hold_makes_its_record_bad_alone(fake):
    wide = logical("bytes", "decimal", precision=10, scale=4)
    narrow = logical("bytes", "decimal", precision=4, scale=2)
    values = [Decimal("1.5000"), Decimal("1.2345"), Decimal("99999.0000")]
    good, scale, large = read(fake, avro(wide), avro(narrow), *values)
    assert good == Decimal("1.50")
    for reason in (scale, large):
        assert reason.startswith("subject s, schema id 1: value does not fit the columns: ")


@pytest.mark.parametrize(
    ("kind", "default", "found"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u0080", b"\xfe\x80"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (logical("bytes", "decimal", precision=6, scale=2), "\u0001\u0000", Decimal("2.56")),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, [("a", b"\xff")]),
        (
            {
                "type": "record",
                "name": "N",
                "fields": [
                    {"name": "n", "type": "int", "default": 7},
                    {"name": "b", "type": "bytes", "default": "\u00ff"},
                ],
            },
            {"n": 8},
            {"n": 8, "b": b"\xff"},
        ),
        (logical("long", "timestamp-millis"), 1_767_268_800_000, NOON),
    ],
)
def test_a_default_of_avro_is_a_value_and_not_its_json(fake, kind, default, found):
    reader = avro(kind, default=default)
    other = {"type": "record", "name": "A", "fields": [{"name": "y", "type": "int"}]}
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    writer = SchemaText("AVRO", json.dumps(other))
    number = registry.register("s", writer)
    old = Encoder(AvroSchema(writer), "s", number).encode({"y": 1})
    usable = AvroSchema(reader)
    decoder = Decoder(registry, "avro", "s", usable)
    rows = decode(decoder, record_of(usable), pa.array([old], pa.binary())).to_pylist()
    assert rows == [{"value": {"x": found}, "kind": None, "reason": None}]
    written = encode(Encoder(usable, "s", number), record_of(usable), pa.array([{}], pa.struct([])))
    (whole,) = encode(
        Encoder(usable, "s", number),
        record_of(usable),
        pa.array([{"x": found}], record_of(usable).type),
    ).to_pylist()
    assert written.to_pylist() == [whole]


def test_a_decimal_of_more_digits_than_its_schema_is_not_rounded(fake):
    """fastavro rounds it to the digits of the writer's schema, which a wider reader took."""
    writer = avro(logical("bytes", "decimal", precision=4, scale=2))
    number = 123_456_789
    framed = b"\0\0\0\0\1\x08" + number.to_bytes(4, "big")
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    registry.register("s", writer)
    found = []
    for precision in (20, 4):
        usable = AvroSchema(avro(logical("bytes", "decimal", precision=precision, scale=2)))
        decoder = Decoder(registry, "avro", "s", usable)
        (row,) = decode(decoder, record_of(usable), pa.array([framed], pa.binary())).to_pylist()
        found.append(row["kind"] or row["value"]["x"])
    assert found == [Decimal("1234567.89"), "misfit"]
    schema = AvroSchema(writer)
    text = schema.to_json(schema.read(framed[5:], None))
    assert json.loads(text)["x"].encode("iso-8859-1") == number.to_bytes(4, "big")


def test_a_time_that_python_lacks_is_told_with_subject_and_id():
    schema = AvroSchema(avro(logical("long", "timestamp-micros")))
    kind = pa.struct([("x", pa.timestamp("us", tz="UTC"))])
    late = pa.array([{"x": 300_000 * 10**12}], pa.struct([("x", pa.int64())])).cast(kind)
    with pytest.raises(BadRecord, match=r"^subject s, schema id 3: row does not fit the schema: "):
        encode(Encoder(schema, "s", 3), record_of(schema), late)


def test_a_decimal_of_avro_without_precision_is_bytes(fake):
    kind = {"type": "bytes", "logicalType": "decimal"}
    assert read(fake, avro(kind), avro(kind), b"\1\2") == [b"\1\2"]


def test_writers_of_both_kinds_are_read_in_one_batch(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    writers = [avro("long"), avro(logical("long", "timestamp-millis"))]
    fake.answer("PUT", "/config", None, {"compatibility": "NONE"})
    framed = [
        Encoder(AvroSchema(each), "s", registry.register("s", each)).encode({"x": 86_400_000})
        for each in writers
    ]
    usable = AvroSchema(writers[1])
    found = decode(
        Decoder(registry, "avro", "s", usable), record_of(usable), pa.array(framed, pa.binary())
    )
    day = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    assert [each["value"] for each in found.to_pylist()] == [{"x": day}] * 2


def test_a_registry_that_is_away_makes_no_record_bad(fake):
    fake.away = 1_000
    registry = SchemaRegistry(RegistrySettings((fake.url,), retry_s=0.2))
    usable = AvroSchema(avro("int"))
    decoder = Decoder(registry, "avro", "s", usable)
    with pytest.raises(RegistryAway):
        decode(decoder, record_of(usable), pa.array([b"\0\0\0\0\1\2"], pa.binary()))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"properties": {"x": {"type": ["string", "integer"]}}}', "field 'x' has several types"),
        ('{"properties": {"x": {}}}', "field 'x' has no type"),
        ('{"type": "object"}', "the schema has no properties"),
        ('{"properties": {"x": {"$ref": "#"}}}', "field 'x' contains itself"),
        ('{"properties": {"x": {"$ref": "#/definitions/no"}}}', "field 'x' has no type"),
        ('{"properties": {"x": {"$ref": "#no"}}}', "field 'x' has .ref '#no', which is no path"),
        ('{"properties": {"x": {"anyOf": [true]}}}', "field 'x' has no type"),
        ('{"properties": {"x": {"type": "string"}, "X": {"type": "string"}}}', "two fields are"),
    ],
)
def test_a_json_schema_without_columns_is_told(text, error):
    with pytest.raises(BadSchema, match=error):
        record_of(JsonSchema(SchemaText("JSON", text)))


def test_numbers_of_json_are_not_made_of_texts(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    free = SchemaText("JSON", "{}")
    number = registry.register("s", free)
    text = '{"properties": {"x": {"type": "integer"}, "y": {"type": "number"}}}'
    usable = JsonSchema(SchemaText("JSON", text))
    values = ['{"x": 1.0, "y": 1}', '{"x": "1"}', '{"x": 1.5}', '{"y": true}', "[]", '{"x": 1e30}']
    framed = [Encoder(JsonSchema(free), "s", number).encode(json.loads(each)) for each in values]
    decoder = Decoder(registry, "json-schema", "s", usable)
    found = decode(decoder, record_of(usable), pa.array(framed, pa.binary())).to_pylist()
    assert [each["value"] for each in found] == [{"x": 1, "y": 1.0}, *[None] * 5]
    assert all("value does not fit the columns" in each["reason"] for each in found[1:])


def test_a_row_with_null_in_a_required_column_is_named():
    schema = AvroSchema(avro("int"))
    rows = pa.array([{"x": 1}, {"x": None}])
    with pytest.raises(BadRecord, match=r"^subject s, schema id 3: column x is null$"):
        encode(Encoder(schema, "s", 3), record_of(schema), rows)


def test_a_required_property_of_a_json_schema_may_be_null_where_its_type_says_so():
    text = '{"properties": {"x": {"type": ["string", "null"]}}, "required": ["x"]}'
    schema = JsonSchema(SchemaText("JSON", text))
    framed = encode(Encoder(schema, "s", 3), record_of(schema), pa.array([{"x": None}]))
    assert framed.to_pylist() == [b'\0\0\0\0\3{"x":null}']


def test_a_field_of_avro_that_may_be_null_needs_a_column_without_a_default():
    required = {
        name: record_of(AvroSchema(avro(["null", "int"], **more))).columns[0].required
        for name, more in {"without": {}, "with": {"default": None}}.items()
    }
    assert required == {"without": True, "with": False}


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (logical("int", "time-millis"), 86_400_000),
        (logical("int", "time-millis"), -1),
        (logical("long", "time-micros"), 90_000_000_000),
    ],
)
def test_a_time_behind_the_end_of_the_day_is_not_one_of_the_next(kind, number):
    schema = AvroSchema(avro(kind))
    rows = pa.array([{"x": number}])
    with pytest.raises(BadRecord, match=r"schema id 3: row does not fit .* are not a time of day"):
        encode(Encoder(schema, "s", 3), record_of(schema), rows)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"a": "x", "b": 1}, "a and b are members of one oneof"),
        ({"list": ["x", None]}, "list has an element that is null"),
        ({"map": [("k", None)]}, "map has an element that is null"),
    ],
)
def test_a_row_that_a_message_would_lose_a_part_of_is_told(row, error):
    text = """syntax = "proto3";
        message A {
          oneof one { string a = 1; int32 b = 2; }
          repeated string list = 3;
          map<string, A.B> map = 4;
          message B { int32 c = 1; }
        }"""
    schema = ProtobufSchema(SchemaText("PROTOBUF", text))
    record = record_of(schema)
    with pytest.raises(BadRecord, match=f"^subject s, schema id 3: row does not fit .*: {error}"):
        encode(Encoder(schema, "s", 3), record, pa.array([row], record.type))


LARGE = {
    "type": "record",
    "name": "L",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "price", "type": logical("bytes", "decimal", precision=6, scale=2)},
        {"name": "clock", "type": logical("int", "time-millis")},
        {"name": "day", "type": logical("int", "date")},
        {"name": "state", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
    ],
}
LARGE_PROTO = """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message L {
  optional string text = 1;
  repeated int64 list = 2;
  map<string, bytes> map = 3;
  google.protobuf.Timestamp at = 4;
  L.E state = 5;
  enum E { A = 0; B = 1; }
  uint64 large = 6;
}
"""


@pytest.mark.parametrize(
    ("codec", "schema", "value"),
    [
        (
            "avro",
            AvroSchema(SchemaText("AVRO", json.dumps(LARGE))),
            '{"text": {"string": "grün"}, "list": [1, 2], "map": {"a": "x"}, "at": 5,'
            ' "price": "\\u0001", "clock": 5, "day": 7, "state": "B"}',
        ),
        (
            "protobuf",
            ProtobufSchema(SchemaText("PROTOBUF", LARGE_PROTO)),
            '{"text": "grün", "list": [1, 2], "map": {"a": "eA=="}, "at": "2026-01-01T00:00:00Z",'
            ' "state": "B", "large": "5"}',
        ),
    ],
)
def test_every_flipped_bit_makes_a_row_or_a_reason(fake, codec, schema, value):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    number = registry.register("s", schema.schema)
    framed = Encoder(schema, "s", number).encode(schema.from_json(value))
    values = [framed]
    for place in range(8 * 5, 8 * len(framed)):
        changed = bytearray(framed)
        changed[place // 8] ^= 1 << place % 8
        values.append(bytes(changed))
    values += [framed[:end] for end in range(len(framed))]
    decoder = Decoder(registry, codec, "s", schema)
    found = decode(decoder, record_of(schema), pa.array(values, pa.binary())).to_pylist()
    assert found[0]["reason"] is None
    assert all((each["value"] is None) == (each["reason"] is not None) for each in found)
    assert sum(each["reason"] is not None for each in found) > len(framed)
