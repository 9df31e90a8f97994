"""Schemas of the three kinds: what does not fit is told, and nothing outside of them is asked."""

import json

import pytest

from barnabas.registry import codecs
from barnabas.registry.avro import AvroSchema
from barnabas.registry.client import SchemaText
from barnabas.registry.errors import BadRecord, BadSchema, RegistryError
from barnabas.registry.json_schema import JsonSchema
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.subjects import subject_of
from barnabas.registry.wire import read_indexes, write_indexes

ENUM = {"type": "enum", "name": "E", "symbols": ["P"]}
UNION = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "long"]}]}'


@pytest.mark.parametrize(
    ("naming", "topic", "record", "subject"),
    [
        ("topic", "t", None, "t-value"),
        ("record", "t", "shop.Order", "shop.Order"),
        ("topic-record", "t", "shop.Order", "t-shop.Order"),
        ("record", None, "shop.Order", "shop.Order"),
    ],
)
def test_a_subject_is_named_as_by_confluents_strategies(naming, topic, record, subject):
    assert subject_of(naming, topic, record) == subject


@pytest.mark.parametrize(("naming", "topic"), [("topic", None), ("record", "t")])
def test_a_subject_without_a_name_is_told(naming, topic):
    with pytest.raises(ValueError, match=r"give the subject|needs the name of the record"):
        subject_of(naming, topic, None)


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [300, 2]])
def test_indexes_come_back(indexes):
    assert read_indexes(write_indexes(indexes) + b"x") == (indexes, b"x")


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\xff", b"\1", b"\xfe\x0f", b"\4\0"]
)
def test_indexes_that_are_none_are_told(data):
    with pytest.raises(BadRecord, match="does not begin with the indexes"):
        read_indexes(data)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"x": 3}', "a member of a union needs its type before it"),
        ('{"x": {"long": "3"}}', 'does not fit the schema: x is "3", and in the schema long'),
        ('{"x": {"long": 9223372036854775808}}', "x is 9223372036854775808, and in the schema"),
        ('{"x": {"int": 3}}', "needs its type before it, .* the types are null, long"),
        ('{"x": null, "z": 1}', "value has no field 'z' in the schema"),
        ("[]", "does not fit"),
        ("", "does not fit"),
    ],
)
def test_json_that_does_not_fit_a_schema_of_avro_is_told(text, error):
    with pytest.raises(BadRecord, match=error):
        AvroSchema(SchemaText("AVRO", UNION)).from_json(text)


def test_of_two_values_of_avro_in_one_text_none_is_lost():
    schema = AvroSchema(SchemaText("AVRO", UNION))
    assert schema.from_json('{\n"x":\nnull}\n') == {"x": None}
    with pytest.raises(BadRecord, match="Extra data"):
        schema.from_json('{"x": null}\n{"x": null}')


def test_avro_defaults_fill_what_a_value_lacks_and_unknown_fields_are_refused():
    text = (
        '{"type": "record", "name": "A", "fields": ['
        '{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 7}]}'
    )
    schema = AvroSchema(SchemaText("AVRO", text))
    assert schema.write({"x": 1}) == b"\2\16"
    for value in ({"y": 1}, {"x": 1, "z": 1}, {"x": None}, {"x": "1"}):
        with pytest.raises(BadRecord):
            schema.write(value)


@pytest.mark.parametrize(
    ("member", "data"),
    [
        ('{"shop.B": {"n": 3}}', b"\2\6"),
        ('{"string": "P"}', b"\4\2P"),
        ('{"E": "P"}', b"\6\0"),
        ('{"F": "P"}', b"\10P"),
        ('{"map": {"a": {"n": 1}, "b": {"n": 2}}}', b"\12\4\2a\2\2b\4\0"),
    ],
)
def test_json_of_a_union_of_avro_keeps_the_member(member, data):
    fields = '"fields": [{"name": "n", "type": "int"}]'
    text = (
        '{"type": "record", "name": "R", "fields": [{"name": "x", "type": ['
        f'{{"type": "record", "name": "A", {fields}}},'
        f'{{"type": "record", "name": "B", "namespace": "shop", {fields}}},'
        '"string", {"type": "enum", "name": "E", "symbols": ["P"]},'
        '{"type": "fixed", "name": "F", "size": 1}, {"type": "map", "values": "A"}]}]}'
    )
    schema = AvroSchema(SchemaText("AVRO", text))
    line = f'{{"x": {member}}}'
    assert schema.write(schema.from_json(line)) == data
    assert schema.to_json(schema.read(data, None)) == line


def test_json_of_a_map_of_records_with_records_is_read():
    inner = '{"type": "record", "name": "B", "fields": [{"name": "n", "type": "int"}]}'
    text = (
        '{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "map",'
        f' "values": {{"type": "record", "name": "A", "fields": [{{"name": "b", "type": {inner}}}]'
        "}}}]}"
    )
    schema = AvroSchema(SchemaText("AVRO", text))
    line = '{"x": {"a": {"b": {"n": 1}}, "b": {"b": {"n": 2}}}}'
    assert schema.to_json(schema.read(schema.write(schema.from_json(line)), None)) == line


@pytest.mark.parametrize(
    ("text", "line", "record"),
    [
        ('["shop.A", "shop.B"]', '{"shop.B": {"a": {"n": 1}}}', None),
        ('"shop.B"', '{"a": {"n": 1}}', "shop.B"),
        ('{"type": "array", "items": "shop.B"}', '[{"a": {"n": 1}}]', None),
    ],
)
def test_a_schema_of_avro_may_be_names_of_its_references(text, line, record):
    """Such a union is how a topic has several types of records."""
    first = '{"type": "record", "name": "shop.A", "fields": [{"name": "n", "type": "int"}]}'
    second = '{"type": "record", "name": "shop.B", "fields": [{"name": "a", "type": "A"}]}'
    schema = AvroSchema(SchemaText("AVRO", text, (), (("shop.A", first), ("shop.B", second))))
    assert schema.record == record
    data = schema.write(schema.from_json(line))
    assert schema.to_json(schema.read(data, None)) == line
    assert schema.read(data, schema) is not None


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (["null", {"type": "map", "values": ["null", ENUM]}], '{"map": {"a": {"E": "P"}}}'),
        (
            ["null", {"type": "array", "items": ["int", "long"]}],
            '{"array": [{"long": 4294967296}]}',
        ),
        (["float", "boolean"], '{"float": 0.5}'),
        ({"type": "long", "logicalType": "timestamp-millis"}, "253402300800000"),
        ({"type": "int", "logicalType": "date"}, "-2147483648"),
    ],
)
def test_json_of_avro_comes_back(kind, line):
    schema = AvroSchema(SchemaText("AVRO", json.dumps(kind)))
    data = schema.write(schema.from_json(line))
    assert schema.to_json(schema.read(data, None)) == line


def test_json_of_avro_gets_the_whole_default_each_time():
    text = (
        '{"type": "record", "name": "R", "fields": [{"name": "x", "default": [1, 2],'
        ' "type": {"type": "array", "items": "int"}}]}'
    )
    schema = AvroSchema(SchemaText("AVRO", text))
    assert [schema.write(schema.from_json("{}")) for _ in range(2)] == [b"\4\2\4\0"] * 2


@pytest.mark.parametrize("name", ["../evil.proto", "/evil.proto", "a/../../evil.proto", ""])
def test_an_import_does_not_leave_its_folder(name):
    with pytest.raises(BadSchema, match="cannot be the name of an import"):
        ProtobufSchema(SchemaText("PROTOBUF", 'syntax = "proto3";', (), ((name, "x"),)))


def test_a_fault_of_a_proto_is_told_with_its_line():
    with pytest.raises(BadSchema, match=r"^not a schema of Protobuf: \S+proto:2:1: "):
        ProtobufSchema(SchemaText("PROTOBUF", 'syntax = "proto3";\nmesage A {}'))
    text = 'syntax = "proto3"; message A { message C {} }'
    with pytest.raises(BadSchema, match=r"the schema has no message B; it has A, A\.C"):
        ProtobufSchema(SchemaText("PROTOBUF", text), "B")


def test_bytes_that_are_no_message_are_told():
    schema = ProtobufSchema(
        SchemaText("PROTOBUF", 'syntax = "proto3"; message A { string s = 1; }')
    )
    for payload in (b"\0\xff", b"\2\2\0", b"\0\x0a\1\xff"):
        with pytest.raises(BadRecord, match=r"value is not a A|the schema has no message"):
            schema.read(payload, schema)


def test_a_reference_of_a_json_schema_is_never_fetched(fake):
    text = f'{{"properties": {{"x": {{"$ref": "{fake.url}/other.json"}}}}}}'
    with pytest.raises(BadRecord, match="the schema cannot be used"):
        JsonSchema(SchemaText("JSON", text)).read(b'{"x": 1}', None)
    assert fake.asked == []


@pytest.mark.parametrize("text", [b'{"x": NaN}', b'{"x": 1e999}x', b"\xff", b"", b"[" * 100_000])
def test_a_value_that_is_no_json_is_told(text):
    with pytest.raises(BadRecord, match="value is not JSON"):
        JsonSchema(SchemaText("JSON", "{}")).read(text, None)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_not_written(number):
    schema = JsonSchema(SchemaText("JSON", "{}"))
    for make in (schema.write, schema.to_json):
        with pytest.raises(BadRecord, match="value is not JSON"):
            make({"x": number})


def test_a_half_surrogate_of_json_stays_an_escape():
    schema = JsonSchema(SchemaText("JSON", "{}"))
    value = schema.from_json('"ü \\ud83d"')
    assert schema.write(value).decode() == schema.to_json(value) == '"ü \\ud83d"'


def test_a_message_that_has_no_json_is_told():
    text = """syntax = "proto3";
        import "google/protobuf/any.proto";
        import "google/protobuf/timestamp.proto";
        message A { google.protobuf.Any any = 1; google.protobuf.Timestamp at = 2; }"""
    schema = ProtobufSchema(SchemaText("PROTOBUF", text))
    unknown, late = schema.make(), schema.make()
    unknown.any.type_url = "type.googleapis.com/shop.Unknown"
    late.at.seconds = 10**15
    for message in (unknown, late):
        with pytest.raises(BadRecord, match="value has no JSON: "):
            schema.to_json(schema.read(schema.write(message), None))


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(codecs, "_is_installed", lambda name: name != "grpc_tools")
    with pytest.raises(RegistryError) as raised:
        codecs.use_of("protobuf")
    assert str(raised.value) == "codec protobuf needs grpc_tools: pip install 'barnabas[formats]'"
