"""Jobs with a schema registry: records of others become columns, and columns records for others."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.pipeline.jobs.reading import JobError, JobFile
from barnabas.registry.client import PROTOBUF, SchemaRegistry, SchemaText
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.settings import RegistrySettings
from barnabas.testing import Broker
from tests.support.command_line import environment
from tests.support.registry import any_registry, fake_registry, only_fake, plain
from tests.support.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
HEADERS = "array<struct<key: string, value: binary>>"
STOCK = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    f" headers {HEADERS}"
)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-micros"}
OLD = [{"name": "id", "type": "string"}, {"name": "amount", "type": DECIMAL},
       {"name": "at", "type": TIME}]  # fmt: skip
NEW = [*OLD, {"name": "coupon", "type": ["null", "string"], "default": None}]


def avro(fields: list[Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with any_registry() as found:
        yield found


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return plain(request.node.name)


def of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def key_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY)


def records(spark: "SparkSession", topic: str, *values: bytes | None) -> "DataFrame":
    return keyed(spark, topic, *((b"k", value) for value in values))


def keyed(
    spark: "SparkSession", topic: str, *pairs: tuple[bytes | None, ...], headers: Any = ()
) -> "DataFrame":
    """Return records of key and value, each with the same headers."""
    rows = [(*pair, topic, 0, at, NOON, list(headers)) for at, pair in enumerate(pairs)]
    return spark.createDataFrame(rows, STOCK)


def job_file(url: str, source: str, sink: str, **more: str) -> JobFile:
    lines = [
        "name: job",
        f"registry: {{url: '{url}', retry.timeout.ms: 2000}}",
        f"source: {{{source}}}",
        f"sink: {{{sink}}}",
        "checkpoint: c",
        *(f"{key}: {value}" for key, value in more.items()),
    ]
    return JobFile(Path("job.yaml"), "\n".join(lines))


def planned(
    spark: "SparkSession", file: JobFile, source: "DataFrame", *, registers: bool = True
) -> "DataFrame":
    from barnabas.pipeline.spark.plan import build

    def rows() -> "DataFrame":
        return build(spark, file.job, lambda *_: source, {}, registers=registers).rows

    return file.located(rows)


def run(spark: "SparkSession", file: JobFile, source: "DataFrame") -> list[Any]:
    return planned(spark, file, source).collect()


def reasons(rows: list[Any]) -> list[str]:
    found = [{each.key: bytes(each.value).decode() for each in row.headers} for row in rows]
    return [each["barnabas.reason"] for each in found if "barnabas.reason" in each]


ALL = [
    {"name": "yes", "type": "boolean"},
    {"name": "int", "type": "int"},
    {"name": "long", "type": ["int", "long"]},
    {"name": "float", "type": "float"},
    {"name": "double", "type": ["null", "double"]},
    {"name": "bytes", "type": "bytes"},
    {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
    {"name": "amount", "type": DECIMAL},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "counts", "type": {"type": "map", "values": "long"}},
    {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "time-micros"}}]}]},
    {"name": "twos", "type": {"type": "array", "items": "Two"}},
]  # fmt: skip
EVERY = {
    "yes": True, "int": -1, "long": 1 << 40, "float": 0.5, "double": None, "bytes": b"\xff",
    "fixed": b"ab", "amount": Decimal("1.50"), "day": NOON.date(),
    "millis": NOON.replace(microsecond=123000), "local": NOON.replace(tzinfo=None),
    "clock": NOON.time(), "uuid": "12345678-1234-5678-1234-567812345678", "state": "B",
    "tags": ["a", None], "counts": {"x": 1}, "inner": {"at": NOON.time()}, "twos": [b"cd"],
}  # fmt: skip


def test_every_type_of_avro_comes_back_as_it_was(spark, url, client, topic):
    value = AvroSerializer(client, avro(ALL))(EVERY, of(topic))
    schema = json.dumps(avro(ALL))
    file = job_file(
        url, f"topic: {topic}, codec: avro", f"topic: {topic}-out, codec: avro, schema: {schema}"
    )
    [row] = run(spark, file, records(spark, topic, value))
    found = AvroDeserializer(client)(bytes(row.value), of(f"{topic}-out"))
    expected = AvroDeserializer(client)(value, of(topic))
    assert found == expected
    assert bytes(row.value)[5:] == value[5:]


def test_records_of_an_older_schema_have_the_defaults_of_the_readers(spark, url, client, topic):
    order = {"id": "a", "amount": Decimal("1.50"), "at": NOON}
    old = AvroSerializer(client, avro(OLD))(order, of(topic))
    new = AvroSerializer(client, avro(NEW))({**order, "coupon": "X"}, of(topic))
    file = job_file(url, f"topic: {topic}, codec: avro", "topic: out")
    found = [json.loads(row.value) for row in run(spark, file, records(spark, topic, old, new))]
    assert [each.get("coupon") for each in found] == [None, "X"]
    first = job_file(url, f"topic: {topic}, codec: avro, version: 1", "topic: out")
    found = [json.loads(row.value) for row in run(spark, first, records(spark, topic, old, new))]
    assert [sorted(each) for each in found] == [["amount", "at", "id"]] * 2


def test_bad_records_have_subject_id_and_reason(spark, url, client, topic):
    order = {"id": "a", "amount": Decimal("1.50"), "at": NOON}
    good = AvroSerializer(client, avro(OLD))(order, of(topic))
    number = int.from_bytes(good[1:5], "big")
    other = AvroSerializer(client, avro([{"name": "x", "type": "int"}], "Other"))(
        {"x": 1}, of(f"{topic}-other")
    )
    wrong = int.from_bytes(other[1:5], "big")
    as_json = JSONSerializer(JSON, client)({"id": "a"}, of(f"{topic}-json"))
    kind = int.from_bytes(as_json[1:5], "big")
    values = [b"{}", b"\0\x7f\xff\xff\xff", good[:-1], good + b"x", other, as_json, None, good]
    file = job_file(url, f"topic: {topic}, codec: avro", "topic: out", bad_records="bad")
    rows = run(spark, file, records(spark, topic, *values))
    assert [row.topic for row in rows].count("out") == 1
    found = dict(zip(range(7), reasons(rows), strict=True))
    place = f"subject {topic}-value"
    assert found[0] == f"{place}: value does not begin with a magic byte and a schema id"
    assert found[1].startswith(f"{place}, schema id 2147483647: ")
    assert found[2].startswith(f"{place}, schema id {number}: value does not fit the schema")
    assert found[3].endswith("value does not fit the schema: 1 bytes too many")
    assert found[4].startswith(f"{place}, schema id {wrong}: value does not fit the schema")
    assert found[5] == f"{place}, schema id {kind}: the schema is JSON, not AVRO"
    assert found[6] == "value is null"
    assert [row.value for row in rows if row.topic == "bad"][:2] == [b"{}", values[1]]


PROTO = """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message All {
  message Line {
    enum Kind { A = 0; B = 1; }
    string item = 1;
    uint32 count = 2;
    Kind kind = 3;
  }
  string id = 1;
  repeated Line lines = 2;
  map<string, Line> named = 3;
  map<int32, bytes> blobs = 4;
  optional int32 discount = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int64Value maybe = 7;
  uint64 large = 8;
  oneof either { string text = 9; double number = 10; }
  Line one = 11;
  repeated int32 numbers = 12;
}
"""
ANY = {
    "id": "ü", "lines": [{"item": "a", "count": 4294967295, "kind": "B"}, {}],
    "named": {"x": {"item": "n"}}, "blobs": {"7": "/w=="}, "discount": 0,
    "at": "1969-12-31T23:59:59.123456Z", "maybe": "0", "large": "18446744073709551615",
    "number": 0.0, "numbers": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("value", [ANY, {}])
def test_every_type_of_protobuf_comes_back_as_it_was(spark, url, topic, value):
    registry = SchemaRegistry(RegistrySettings((url,)))
    made = SchemaText(PROTOBUF, PROTO)
    number = registry.register(f"{topic}-value", made)
    schema = ProtobufSchema(made)
    framed = Encoder(schema, "s", number).encode(schema.from_json(json.dumps(value)))
    text = json.dumps(PROTO)
    sink = f"topic: {topic}-out, codec: protobuf, schema: {text}"
    file = job_file(url, f"topic: {topic}, codec: protobuf", sink)
    [row] = run(spark, file, records(spark, topic, framed))
    writer, found = Decoder(registry, "protobuf", "s").decode(bytes(row.value))
    assert json.loads(writer.to_json(found)) == value
    assert bytes(row.value)[5:] == framed[5:]


def test_unknown_fields_of_protobuf_are_left_out_and_other_messages_are_bad(spark, url, topic):
    registry = SchemaRegistry(RegistrySettings((url,)))
    text = 'syntax = "proto3"; message A { string id = 1;%s } message B { int32 x = 1; }'
    old, new = (SchemaText(PROTOBUF, text % more) for more in ("", " string more = 2;"))
    registry.register(f"{topic}-value", old)
    number = registry.register(f"{topic}-value", new)
    values = [
        Encoder(schema, "s", number).encode(schema.from_json(text))
        for schema, text in (
            (ProtobufSchema(new), '{"id": "a", "more": "m"}'),
            (ProtobufSchema(new, "B"), '{"x": 1}'),
        )
    ]
    source = f"topic: {topic}, codec: protobuf, version: 1"
    file = job_file(url, source, "topic: out", bad_records="bad")
    rows = run(spark, file, records(spark, topic, *values))
    assert [bytes(row.value) for row in rows if row.topic == "out"] == [b'{"id":"a"}']
    assert reasons(rows) == [f"subject {topic}-value, schema id {number}: value is a B, not a A"]


JSON = json.dumps({
    "title": "Order",
    "type": "object",
    "definitions": {"line": {"type": "object", "properties": {"item": {"type": "string"}}}},
    "properties": {
        "id": {"type": "string"},
        "count": {"type": ["integer", "null"]},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
})  # fmt: skip


def test_json_schema_gives_columns_and_takes_them(spark, url, client, topic):
    order = {"id": "ü", "count": 1, "price": 2, "lines": [{"item": "a"}, {}], "counts": {"x": 1}}
    values = [JSONSerializer(JSON, client)(each, of(topic)) for each in (order, {"id": "b"})]
    wrong = values[0][:5] + b'{"id": 5}'
    sink = f"topic: {topic}-out, codec: json-schema, schema: {json.dumps(JSON)}"
    source = f"topic: {topic}, codec: json-schema"
    file = job_file(url, source, sink, bad_records="bad")
    rows = run(spark, file, records(spark, topic, *values, wrong))
    read = JSONDeserializer(JSON, schema_registry_client=client)
    found = [read(bytes(row.value), of(topic)) for row in rows if row.topic != "bad"]
    assert found == [order, {"id": "b"}]
    [reason] = reasons(rows)
    assert "value does not fit the schema: $.id: 5 is not of type 'string'" in reason


def test_rows_that_are_left_out_are_not_encoded_and_several_sinks_are(spark, url, client, topic):
    schema = avro([{"name": "id", "type": ["null", "string"]}])
    write = AvroSerializer(client, schema)
    values = [write({"id": each}, of(topic)) for each in ("a", None)]
    strict = json.dumps(avro([{"name": "id", "type": "string"}]))
    file = JobFile(
        Path("job.yaml"),
        f"name: job\nregistry: '{url}'\nsource: {{topic: {topic}, codec: avro}}\n"
        f"sinks:\n  - {{topic: {topic}-a, codec: avro, schema: {strict}, where: id IS NOT NULL}}\n"
        f"  - {{topic: {topic}-b, codec: json}}\nbad_records: bad\ncheckpoint: c\n",
    )
    rows = run(spark, file, records(spark, topic, *values, b"no"))
    found = sorted((row.topic, bytes(row.value)[5:]) for row in rows)
    assert found == [
        ("bad", b""),
        (f"{topic}-a", b"\2a"),
        (f"{topic}-b", b""),
        (f"{topic}-b", b':"a"}'),
    ]


def test_the_login_of_the_registry_is_in_no_plan(spark, url, topic, monkeypatch):
    monkeypatch.setenv("REGISTRY_LOGIN", "alice:s3cret-zq7")
    register(url, topic, avro([{"name": "value", "type": "string"}]))
    file = JobFile(
        Path("job.yaml"),
        f"name: job\nregistry: {{url: '{url}', basic.auth.user.info: {{env: REGISTRY_LOGIN}}}}\n"
        f"source: {{topic: {topic}, codec: avro}}\n"
        f"sink: {{topic: {topic}, codec: avro, register: false}}\ncheckpoint: c\n",
    )
    rows = planned(spark, file, records(spark, topic, b"\0\0\0\0\1"))
    plan = rows._jdf.queryExecution().toString()
    assert "decode_values" in plan
    assert "encode_rows" in plan
    login = file.job.registry_settings.authorization or ""
    assert not any(each in plan for each in ("zq7", login.split()[1]))


# -- schemas of columns, keys, headers -------------------------------------------------------------


TYPES = """\
SELECT true AS yes, 1Y AS tiny, 2S AS small, 3 AS int, 4L AS long, 0.5F AS float, 0.25D AS double,
       'a' AS text, X'ff' AS bytes, 1.50BD AS amount, DATE'2026-01-01' AS day,
       TIMESTAMP'2026-01-01 12:00:00' AS at, TIMESTAMP_NTZ'2026-01-01 12:00:00' AS local,
       array(1, null) AS list, map('x', 1L) AS counts, named_struct('n', 1) AS inner
FROM source"""


def test_a_schema_of_avro_is_made_of_the_columns_and_follows_them(spark, url, client, topic):
    def written(sql: str, *, registers: bool = True) -> Any:
        steps = json.dumps([{"view": "v", "sql": sql}])
        file = job_file(url, "topic: in", f"topic: {topic}, codec: avro", steps=steps)
        [row] = planned(spark, file, records(spark, "in", b""), registers=registers).collect()
        return AvroDeserializer(client)(bytes(row.value), of(topic)) if registers else None

    written(TYPES, registers=False)
    assert f"{topic}-value" not in client.get_subjects()
    expected = {
        "yes": True, "tiny": 1, "small": 2, "int": 3, "long": 4, "float": 0.5, "double": 0.25,
        "text": "a", "bytes": b"\xff", "amount": Decimal("1.50"), "day": NOON.date(),
        "at": NOON.replace(microsecond=0), "local": NOON.replace(microsecond=0, tzinfo=None),
        "list": [1, None], "counts": {"x": 1}, "inner": {"n": 1},
    }  # fmt: skip
    assert written(TYPES) == expected
    assert written(TYPES.replace("SELECT", "SELECT 'new' AS more,")) == {"more": "new", **expected}
    assert client.get_versions(f"{topic}-value") == [1, 2]
    with pytest.raises(JobError, match=r"job.yaml:4:.*incompatible"):
        written("SELECT 'a' AS int FROM source")


def test_a_json_schema_is_made_of_the_columns(spark, url, client, topic):
    sql = "SELECT 1 AS n, array('a', null) AS list, named_struct('x', 0.5D) AS inner FROM source"
    file = job_file(
        url,
        "topic: in",
        f"topic: {topic}, codec: json-schema, record: Row",
        steps=f'[{{view: v, sql: "{sql}"}}]',
    )
    [row] = run(spark, file, records(spark, "in", b""))
    found = client.get_latest_version(f"{topic}-value").schema.schema_str
    value = JSONDeserializer(found)(bytes(row.value), of(topic))
    assert value == {"n": 1, "list": ["a", None], "inner": {"x": 0.5}}
    assert json.loads(found)["title"] == "Row"


@pytest.mark.parametrize(
    ("codec", "sql", "error"),
    [
        ("avro", "INTERVAL '1' DAY", "v is of a type that Avro does not have: cast it"),
        ("json-schema", "current_date()", "v is of a type that JSON Schema does not have: cast it"),
    ],
)
def test_columns_without_a_type_in_the_schema_are_refused(spark, url, topic, codec, sql, error):
    steps = f'[{{view: w, sql: "SELECT {sql} AS v FROM source"}}]'
    file = job_file(url, "topic: in", f"topic: {topic}, codec: {codec}", steps=steps)
    assert error in refusal(spark, file, topic)


KEY = json.dumps({"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]})


def test_keys_have_schemas(spark, url, client, topic):
    key = AvroSerializer(client, KEY)({"id": 7}, key_of(topic))
    file = job_file(
        url,
        f"topic: {topic}, codec: string, key: avro",
        f"topic: {topic}-out, codec: string, key_codec: avro",
        bad_records="bad",
    )
    rows = run(spark, file, keyed(spark, topic, (key, b"a"), (None, b"b"), (b"no", b"c")))
    good = {bytes(row.value): row.key for row in rows if row.topic != "bad"}
    assert AvroDeserializer(client)(bytes(good[b"a"]), key_of(f"{topic}-out")) == {"id": 7}
    assert good.keys() == {b"a", b"b"}
    assert good[b"b"] is None
    assert [bytes(row.key) for row in rows if row.topic == "bad"] == [b"no"]
    assert reasons(rows) == [
        f"subject {topic}-key: key does not begin with a magic byte and a schema id"
    ]
    assert client.get_latest_version(f"{topic}-out-key").schema.schema_type == "AVRO"


def test_a_key_that_fails_its_schema_has_reasons_apart_from_its_value(spark, url, client, topic):
    from barnabas.pipeline.spark.parsing import bad_counts, parse

    key = AvroSerializer(client, KEY)({"id": 7}, key_of(topic))
    order = {"id": "a", "amount": Decimal("1.50"), "at": NOON}
    value = AvroSerializer(client, avro(OLD))(order, of(topic))
    number = int.from_bytes(key[1:5], "big")
    unknown = b"\0\x7f\xff\xff\xff"
    steps = '[{view: ids, sql: "SELECT id FROM source"}]'
    keys = f"topic: {topic}, codec: avro, key: avro"
    file = job_file(url, keys, "topic: out", steps=steps, bad_records="bad")
    source = keyed(
        spark,
        topic,
        *((each, value) for each in (b"no", unknown, key[:-1], key + b"x", value, key)),
        (key, value[:-1]),
        (key, unknown),
    )
    found = reasons(run(spark, file, source))
    place = f"subject {topic}-key"
    assert found[0] == f"{place}: key does not begin with a magic byte and a schema id"
    assert found[1].startswith(f"{place}, schema id 2147483647: ")
    assert found[2].startswith(f"{place}, schema id {number}: key does not fit the schema: ")
    assert found[3] == f"{place}, schema id {number}: key does not fit the schema: 1 bytes too many"
    assert found[5].startswith(f"subject {topic}-value, schema id ")
    assert ": value does not fit the schema: " in found[5]
    [(location, given)] = file.job.inputs
    marked = parse(file.job, location, given, source)
    [counted] = marked.rows.agg(*bad_counts(marked)).collect()
    counts = counted.asDict()
    assert {name: each for name, each in counts.items() if "first" not in name and each} == {
        "key.no_schema_id": 1,
        "key.unknown_schema_id": 1,
        "key.misfit": 3,
        "value.misfit": 1,
        "value.unknown_schema_id": 1,
    }
    assert counted["first.key.misfit"]["schema"] == f"{place}, schema id {number}"
    assert counted["first.value.other_schema"] is None


def test_a_key_may_be_a_single_value(spark, url, client, topic):
    key = AvroSerializer(client, '"long"')(7, key_of(topic))
    steps = '[{view: v, sql: "SELECT _key + 1 AS next, value FROM source"}]'
    key_codec = "{codec: avro, schema: '\"long\"'}"
    sink = f"topic: {topic}-out, codec: string, key: next, key_codec: {key_codec}"
    file = job_file(url, f"topic: {topic}, codec: string, key: avro", sink, steps=steps)
    [row] = run(spark, file, keyed(spark, topic, (key, b"a")))
    assert AvroDeserializer(client)(bytes(row.key), key_of(f"{topic}-out")) == 8


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ("key_codec: avro, key: value", ""),
        (
            "key_codec: {codec: avro, schema: '\"int\"'}, key: value",
            "'value' is string, and in the",
        ),
        (f"key_codec: {{codec: avro, schema: '{KEY}'}}, key: value", "of the key is of a struct"),
        ("key_codec: {codec: avro, register: false}, key: value", "found. (404"),
    ],
)
def test_a_codec_of_keys_that_does_not_fit_is_refused(spark, url, topic, sink, error):
    file = job_file(url, "topic: in, codec: string", f"topic: {topic}, codec: string, {sink}")
    if not error:
        planned(spark, file, records(spark, topic))
        return
    text = refusal(spark, file, topic)
    assert text.startswith("job.yaml:4:")
    assert error in text


@only_fake
@pytest.mark.parametrize("codec", ["avro", "json-schema", "protobuf"])
def test_a_header_may_have_the_schema(spark, url, client, topic, codec):
    headers: list[tuple[str, bytes]] = [("other", b"1")]
    context = SerializationContext(topic, MessageField.VALUE, headers)
    setting = {"schema.id.serializer": header_schema_id_serializer}
    if codec == "avro":
        text = avro([{"name": "id", "type": "string"}])
        value = AvroSerializer(client, text, conf=setting)({"id": "a"}, context)
    elif codec == "json-schema":
        text = json.dumps(
            {"title": "O", "properties": {"id": {"type": "string"}}, "type": "object"}
        )
        value = JSONSerializer(text, client, conf=setting)({"id": "a"}, context)
    else:
        text = 'syntax = "proto3"; message A { int32 x = 1; } message B { string id = 1; }'
        message = ProtobufSchema(SchemaText(PROTOBUF, text), "B").from_json('{"id": "a"}')
        value = ProtobufSerializer(type(message), client, conf=setting)(message, context)
    assert value[0] != 0
    assert [name for name, _ in headers] == ["other", "__value_schema_id"]
    record = ", record: B" if codec == "protobuf" else ""
    source = f"topic: {topic}, codec: {codec}{record}"
    file = job_file(url, source, f"topic: {topic}-out", bad_records="bad")
    [row] = run(spark, file, keyed(spark, topic, (b"k", value), headers=headers))
    assert json.loads(row.value) == {"id": "a"}
    assert [each.key for each in row.headers] == ["other"]

    unknown = [("__value_schema_id", b"\1" + 16 * b"\7")]
    # A program that passed headers on has added its own.
    [row] = run(spark, file, keyed(spark, topic, (b"k", value), headers=[*unknown, *headers]))
    assert json.loads(row.value) == {"id": "a"}
    rows = run(spark, file, keyed(spark, topic, (b"k", value), headers=unknown))
    guid = "07070707-0707-0707-0707-070707070707"
    assert [each.split(": ")[0] for each in reasons(rows)] == [
        f"subject {topic}-value, schema id {guid}"
    ]
    assert rows[0].headers[0].key == "__value_schema_id"


# -- what is refused before anything is written ----------------------------------------------------


def register(url: str, topic: str, text: str) -> int:
    return SchemaRegistry(RegistrySettings((url,))).register(
        f"{topic}-value", SchemaText("AVRO", text)
    )


def refusal(spark: "SparkSession", file: JobFile, topic: str, *, registers: bool = True) -> str:
    with pytest.raises(JobError) as raised:
        planned(spark, file, records(spark, topic), registers=registers)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("registers", [True, False])
def test_an_incompatible_schema_is_refused_by_check_and_run(spark, url, topic, registers):
    register(url, topic, avro([{"name": "value", "type": "int"}]))
    schema = json.dumps(avro([{"name": "value", "type": "string"}]))
    sink = f"topic: {topic}, codec: avro, schema: {schema}"
    file = job_file(url, "topic: in, codec: string", sink)
    text = refusal(spark, file, topic, registers=registers)
    assert text.startswith("job.yaml:4:")
    assert f"the schema is incompatible with subject {topic}-value: " in text


def test_check_registers_nothing(spark, url, client, topic):
    schema = json.dumps(avro([{"name": "value", "type": "string"}]))
    sink = f"topic: {topic}, codec: avro, schema: {schema}"
    file = job_file(url, "topic: in, codec: string", sink)
    planned(spark, file, records(spark, topic), registers=False)
    assert f"{topic}-value" not in client.get_subjects()


def test_a_sink_with_register_false_writes_the_version_that_is_there(spark, url, topic):
    number = register(url, topic, avro([{"name": "value", "type": "string"}]))
    sink = f"topic: {topic}, codec: avro, register: false"
    file = job_file(url, "topic: in, codec: string", sink)
    [row] = run(spark, file, records(spark, topic, b"a"))
    assert bytes(row.value) == b"\0" + number.to_bytes(4, "big") + b"\2a"
    sink = f"topic: {topic}-none, codec: avro, register: false"
    file = job_file(url, "topic: in, codec: string", sink)
    assert refusal(spark, file, topic).startswith("job.yaml:4:")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([{"name": "other", "type": "string"}], "the schema has no field 'value'"),
        ([{"name": "value", "type": "int"}], "column 'value' is string, and in the schema int: "),
        (
            [{"name": "value", "type": "string"}, {"name": "n", "type": "int"}],
            "the schema needs a column 'n'",
        ),
        ([{"name": "value", "type": ["int", "string"]}], "is a union of several types"),
        ([{"name": "value", "type": "strin"}], "not a schema of Avro: "),
        (
            [{"name": "value", "type": ["null", "shop.Order"]}],
            "field 'value' contains itself, which has no columns",
        ),
    ],
)
def test_a_schema_that_does_not_fit_the_columns_is_refused(spark, url, topic, fields, error):
    sink = f"topic: out-{topic}, codec: avro, schema: {json.dumps(avro(fields))}"
    file = job_file(url, "topic: in, codec: string", sink)
    assert error in refusal(spark, file, topic)


def test_a_row_that_does_not_fit_fails_its_batch_with_the_column(spark, url, topic):
    schema = json.dumps(avro([{"name": "value", "type": "string"}]))
    sink = f"topic: {topic}, codec: avro, schema: {schema}"
    file = job_file(url, "topic: in, codec: string", sink)
    with pytest.raises(Exception, match=rf"subject {topic}-value, schema id \d+: column value is"):
        run(spark, file, records(spark, topic, None))


# -- a registry that is away -----------------------------------------------------------------------


@only_fake
def test_a_batch_waits_for_the_registry_and_then_fails(spark, topic):
    order = {"id": "a", "amount": Decimal("1.50"), "at": NOON}
    with fake_registry() as registry:
        value = AvroSerializer(SchemaRegistryClient({"url": registry.url}), avro(OLD))(
            order, of(topic)
        )
        file = job_file(registry.url, f"topic: {topic}, codec: avro", "topic: out")
        rows = planned(spark, file, records(spark, topic, value).coalesce(1))
        registry.away = 1_000_000
        with pytest.raises(
            Exception, match=r"registry http://\S+ does not answer \(away \(503\)\)"
        ):
            rows.collect()
        registry.away = 3
        assert len(rows.collect()) == 1


# -- the example of the documentation --------------------------------------------------------------


def test_the_example_makes_protobuf_of_avro_with_an_evolved_schema(url, client, tmp_path):
    bad, out = "orders-avro-broken", "orders-protobuf"
    order = {"id": "a", "amount": Decimal("1.50"), "at": NOON}
    values = [
        AvroSerializer(client, avro(OLD))(order, of("orders-avro")),
        AvroSerializer(client, avro(NEW))({**order, "coupon": "X"}, of("orders-avro")),
        b"no",
    ]
    for name in ("orders-to-protobuf.yaml", "orders.proto"):
        (tmp_path / name).write_text((ROOT / "docs" / "examples" / name).read_text())
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        for name in ("orders-avro", out, bad):
            broker.create_topic(name, partitions=1)
        for value in values:
            broker.produce("orders-avro", value, key="k")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "barnabas", "pipeline", "run"),
                str(tmp_path / "orders-to-protobuf.yaml"),
            ],
            capture_output=True,
            text=True,
            env=environment(
                BARNABAS_BOOTSTRAP_SERVER=broker.bootstrap_servers, SCHEMA_REGISTRY_URL=url
            ),
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        registry = SchemaRegistry(RegistrySettings((url,)))
        decoder = Decoder(registry, "protobuf", f"{out}-value")
        found = []
        for each in broker.records(out, 2):
            schema, value = decoder.decode(each.value)
            found.append(json.loads(schema.to_json(value)))
        first = {"id": "a", "cents": "150", "at": "2026-01-01T12:00:00.123456Z"}
        assert found == [first, {**first, "coupon": "X"}]
        [broken] = broker.records(bad, 1)
        assert broken.value == b"no"
        reason = dict(broken.headers)["barnabas.reason"]
        assert reason.startswith(b"subject orders-avro-value: value does not begin with a magic")
