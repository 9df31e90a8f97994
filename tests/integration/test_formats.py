"""`consume --codec` and `produce --codec`, beside serializers that others have written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.testing import Broker
from tests.support.command_line import Cli, run_here
from tests.support.registry import any_registry, fake_registry, only_fake, plain

AVRO = json.dumps({
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "count", "type": ["null", "int"]}],
})  # fmt: skip
PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; int32 count = 2; }'
JSON = json.dumps({
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "count": {"type": "integer"}},
})  # fmt: skip
READ = ("-o", "beginning", "-e")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with any_registry() as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    return broker.create_topic(plain(request.node.name))


def fails(servers: str, *arguments: str, stdin: bytes = b"", **more: str) -> str:
    done = run_here(*arguments, servers=servers, stdin=stdin, **more)
    assert done.returncode != 0
    return done.stderr.decode().strip()


@pytest.mark.parametrize(
    ("codec", "schema", "line"),
    [
        ("avro", AVRO, b'{"id": "a", "count": {"int": 3}}\n'),
        ("protobuf", PROTO, '{"id": "ü", "count": 3}\n'.encode()),
        ("json-schema", JSON, b'{"id": "a", "count": 3}\n'),
    ],
)
def test_what_is_produced_is_consumed(cli: Cli, url, topic, tmp_path, codec, schema, line):
    how = ("--codec", codec, "--registry", url)
    (tmp_path / "schema").write_text(schema)
    cli("produce", topic, *how, "--schema", str(tmp_path / "schema"), stdin=line)
    cli("produce", topic, *how, "-K", ":", stdin=b"k:" + line)
    assert cli("consume", topic, *READ, *how) == line * 2
    as_json = cli("consume", topic, *READ, *how, "--json")
    assert [json.loads(each)["value"] for each in as_json.splitlines()] == [
        line.decode().strip()
    ] * 2
    cli("produce", topic, *how, "--format", "json", stdin=as_json)
    assert cli("consume", topic, *READ, *how) == line * 4


def test_serializers_of_others_read_and_write_the_same(cli: Cli, broker, url, topic):
    client = SchemaRegistryClient({"url": url})
    context = SerializationContext(topic, MessageField.VALUE)
    theirs = AvroSerializer(client, AVRO)({"id": "a", "count": None}, context)
    broker.produce(topic, theirs)
    how = ("--codec", "avro", "--registry", url)
    assert cli("consume", topic, *READ, *how) == b'{"id": "a", "count": null}\n'
    cli("produce", topic, *how, stdin=b'{"id": "b", "count": {"int": 2}}\n')
    value = broker.records(topic, 2)[1].value
    assert AvroDeserializer(client)(value, context) == {"id": "b", "count": 2}


@only_fake
def test_a_header_may_have_the_schema(cli: Cli, broker, url, topic):
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    setting = {"schema.id.serializer": header_schema_id_serializer}
    client = SchemaRegistryClient({"url": url})
    value = AvroSerializer(client, AVRO, conf=setting)({"id": "a", "count": None}, context)
    broker.produce(topic, value, headers=headers)
    how = ("--codec", "avro", "--registry", url)
    assert cli("consume", topic, *READ, *how) == b'{"id": "a", "count": null}\n'

    # A copy has the schema's id before the value, and no header that says something else.
    as_json = cli("consume", topic, *READ, *how, "--json")
    cli("produce", topic, *how, "--format", "json", stdin=as_json)
    assert cli("consume", topic, *READ, *how) == b'{"id": "a", "count": null}\n' * 2


def test_bad_records_are_named_and_left_out(cli: Cli, broker, servers, url, topic, tmp_path):
    how = ("--codec", "avro", "--registry", url)
    (tmp_path / "schema").write_text(AVRO)
    line = b'{"id": "a", "count": null}\n'
    for value in (b"no", b"\0\x7f\xff\xff\xff", None):
        broker.produce(topic, value)
    cli("produce", topic, *how, "--schema", str(tmp_path / "schema"), stdin=line)
    done = run_here("consume", topic, *READ, *how, "-Z", servers=servers)
    assert (done.returncode, done.stdout) == (1, b"NULL\n" + line)
    first, second, last = done.stderr.decode().splitlines()
    place = f"Left out: {topic}/0"
    assert first.startswith(f"{place}@0: subject {topic}-value: value does not begin with")
    assert second.startswith(f"{place}@1: subject {topic}-value, schema id 2147483647: ")
    assert last.endswith("2 record(s) could not be decoded")


def test_a_line_that_does_not_fit_is_named(servers, url, topic, tmp_path):
    how = ("--codec", "avro", "--registry", url)
    (tmp_path / "schema").write_text(AVRO)
    lines = b'{"id": "a", "count": null}\n{"id": 1}\n'
    schema = str(tmp_path / "schema")
    text = fails(servers, "produce", topic, *how, "--schema", schema, stdin=lines)
    assert "line 2: subject" in text or "line 2: value does not fit the schema" in text
    assert "\n" not in text


def test_an_incompatible_schema_is_refused_before_a_record(cli: Cli, servers, url, topic, tmp_path):
    how = ("--codec", "avro", "--registry", url, "--schema", str(tmp_path / "schema"))
    (tmp_path / "schema").write_text(AVRO)
    cli("produce", topic, *how, stdin=b"")
    (tmp_path / "schema").write_text(AVRO.replace('"string"', '"int"'))
    text = fails(servers, "produce", topic, *how, stdin=b'{"id": 1, "count": null}\n')
    assert f"the schema is incompatible with subject {topic}-value: " in text
    assert cli.json("topics", "describe", topic)["partitions"][0]["end"] == 0


@pytest.mark.parametrize(
    ("naming", "options", "subject"),
    [
        ("record", (), "shop.Order"),
        ("topic-record", (), "{topic}-shop.Order"),
        ("topic", ("--subject", "{topic}-own"), "{topic}-own"),
    ],
)
def test_subjects_are_named(cli: Cli, url, topic, tmp_path, naming, options, subject):
    (tmp_path / "schema").write_text(AVRO)
    more = [each.format(topic=topic) for each in options]
    how = ("--codec", "avro", "--registry", url, "--naming", naming, *more)
    cli("produce", topic, *how, "--schema", str(tmp_path / "schema"), stdin=b"")
    assert subject.format(topic=topic) in SchemaRegistryClient({"url": url}).get_subjects()
    line = b'{"id": "a", "count": null}\n'
    record = () if "--subject" in options else ("--record", "shop.Order")
    cli("produce", topic, *how, *record, stdin=line)
    assert cli("consume", topic, *READ, "--codec", "avro", "--registry", url) == line


@only_fake
def test_the_login_comes_from_a_file_that_the_command_is_given(
    cli: Cli, servers, topic, tmp_path: Path
):
    with fake_registry() as registry:
        registry.login = "alice:s3cret"
        how = ("--codec", "avro", "--registry", registry.url)
        (tmp_path / "schema").write_text(AVRO)
        write = ("produce", topic, *how, "--schema", str(tmp_path / "schema"))
        assert "refuses the login (401)" in fails(servers, *write)
        (tmp_path / "secret.properties").write_text("login=alice:s3cret\n")
        (tmp_path / "client.properties").write_text(
            "config.providers=file\n"
            "config.providers.file.class="
            "org.apache.kafka.common.config.provider.FileConfigProvider\n"
            "schema.registry.basic.auth.user.info="
            f"${{file:{tmp_path}/secret.properties:login}}\n"
        )
        cli(*write, "--command-config", str(tmp_path / "client.properties"), stdin=b"")
        assert registry.asked[-1] == f"POST /subjects/{topic}-value/versions"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("consume", "t", "--codec", "avro"), "--codec needs --registry"),
        (("consume", "t", "--registry", "http://h"), "--registry needs --codec"),
        (("produce", "t", "--subject", "s"), "--subject needs --codec"),
        (("consume", "t", "--codec", "avro", "--registry", "h:1"), "url must be http://HOST:PORT"),
        (("consume", "t", "--codec", "avro", "--registry", "http://h", "--decode"), "not both"),
    ],
)
def test_options_that_lack_others_are_refused(servers, arguments, error):
    assert error in fails(servers, *arguments)


def test_a_subject_that_is_not_there_is_told(servers, url, topic):
    text = fails(servers, "produce", topic, "--codec", "avro", "--registry", url, stdin=b"{}\n")
    assert topic in text
    assert "\n" not in text
