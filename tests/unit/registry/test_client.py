"""The client of a registry: what it waits for, what it remembers, and whom it believes."""

import json
import ssl
from uuid import UUID

import pytest

from barnabas.config.key import ConfigError
from barnabas.registry import client as clients
from barnabas.registry.avro import AvroSchema
from barnabas.registry.client import Reference, SchemaRegistry, SchemaText
from barnabas.registry.errors import (
    BadRecord,
    BadSchema,
    Incompatible,
    RegistryAway,
    RegistryError,
    UnknownSchema,
)
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.settings import RegistrySettings, read_settings
from barnabas.registry.wire import unframe
from tests.support.certificates import Stores
from tests.support.registry import fake_registry

INT = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}'
TEXT = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "string"}]}'


def test_a_schema_is_registered_once_and_asked_for_once(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    number = registry.register("a", SchemaText("AVRO", INT))
    assert registry.register("a", SchemaText("AVRO", INT)) == number
    assert registry.schema(number) == registry.schema(number) == SchemaText("AVRO", INT)
    assert fake.asked.count(f"GET /schemas/ids/{number}") == 1
    assert registry.version("a", 1) == registry.version("a")


def test_an_id_is_unknown_for_a_while(fake, monkeypatch):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    for _ in range(2):
        with pytest.raises(UnknownSchema):
            registry.schema(1)
    assert fake.asked == ["GET /schemas/ids/1"]
    registry.register("a", SchemaText("AVRO", INT))
    monkeypatch.setattr(clients, "_UNKNOWN_S", 0.0)
    other = SchemaRegistry(RegistrySettings((fake.url,)))
    with pytest.raises(UnknownSchema):
        other.schema(2)
    other.register("b", SchemaText("AVRO", TEXT))
    assert other.schema(2).text == TEXT


def test_a_schema_is_asked_for_once_by_its_guid(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    registry.register("a", SchemaText("AVRO", INT))
    found = registry._ask("GET", "/subjects/a/versions/1")
    guid = UUID(found["guid"])
    asked = len(fake.asked)
    assert registry.schema(guid) == registry.schema(guid) == SchemaText("AVRO", INT)
    assert fake.asked[asked:] == [f"GET /schemas/guids/{guid}"]
    with pytest.raises(UnknownSchema):
        registry.schema(UUID(int=7))


GUID = UUID(int=1 << 64)


@pytest.mark.parametrize(
    ("value", "header", "found"),
    [
        (b"\0\0\0\0\7rest", None, (7, b"rest")),
        (b"\1" + GUID.bytes + b"rest", None, (GUID, b"rest")),
        (b"rest", b"\1" + GUID.bytes, (GUID, b"rest")),
        (b"rest", b"\1" + GUID.bytes + b"\2\2", (GUID, b"\2\2rest")),
        (b"rest", b"\0\0\0\0\7", (7, b"rest")),
        (b"", b"\0\0\0\0\7", (7, b"")),
        (b"\0\0\0\7", None, "value does not begin with a magic byte and a schema id"),
        (b"\1" + 15 * b"\7", None, "value does not begin"),
        (b"\2" + 16 * b"\7", None, "value does not begin"),
        (b"\0\0\0\0\7", b"", "the header of the schema does not begin"),
        (b"\0\0\0\0\7", b"\1\1", "the header of the schema does not begin"),
    ],
)
def test_value_or_header_begin_with_id_or_guid(value, header, found):
    if isinstance(found, str):
        with pytest.raises(BadRecord, match=found):
            unframe(value, header)
    else:
        assert unframe(value, header) == found


def test_what_is_remembered_is_bounded(fake, monkeypatch):
    monkeypatch.setattr(clients, "_MOST_SCHEMAS", 2)
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    for number in range(1, 4):
        registry.register(f"s{number}", SchemaText("AVRO", INT.replace('"A"', f'"A{number}"')))
    for number in (1, 2, 1, 3, 1, 2):
        registry.schema(number)
    assert [each for each in fake.asked if each.startswith("GET")] == [
        f"GET /schemas/ids/{number}" for number in (1, 2, 3, 2)
    ]


def test_an_incompatible_schema_is_told_by_check_and_by_register(registry, topic):
    registry.check(topic, SchemaText("AVRO", INT))
    registry.register(topic, SchemaText("AVRO", INT))
    for ask in (registry.check, registry.register):
        with pytest.raises(Incompatible, match=rf"with subject {topic}: .*(x|/fields/0)"):
            ask(topic, SchemaText("AVRO", TEXT))


def test_a_schema_that_is_none_is_told(registry, topic):
    with pytest.raises(BadSchema, match=rf"refuses the schema of {topic}"):
        registry.register(topic, SchemaText("AVRO", "{"))


def test_a_subject_may_have_a_slash_and_a_space(registry):
    number = registry.register("a b/c?d", SchemaText("AVRO", INT))
    assert registry.version("a b/c?d").id == number


def test_references_are_resolved_the_deepest_first(registry, topic):
    def record(name: str, kind: str) -> str:
        fields = [{"name": "x", "type": kind}]
        return json.dumps({"type": "record", "name": name, "fields": fields})

    names = [f"{topic.replace('-', '')}{each}" for each in "abc"]
    registry.register(names[0], SchemaText("AVRO", record("A", "int")))
    first = registry.with_references("AVRO", record("B", "A"), [Reference("A", names[0], 1)])
    registry.register(names[1], first)
    second = registry.with_references("AVRO", record("C", "B"), [Reference("B", names[1], 1)])
    number = registry.register(names[2], second)
    found = registry.schema(number)
    assert [name for name, _ in found.resolved] == ["A", "B"]
    assert AvroSchema(found).write({"x": {"x": {"x": 1}}}) == b"\2"


def test_a_registry_that_is_away_is_waited_for_and_then_given_up(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,), retry_s=1.0))
    fake.away = 2
    number = registry.register("a", SchemaText("AVRO", INT))
    fake.away = 1_000
    with pytest.raises(RegistryAway, match=r"does not answer \(away \(503\)\) for 1 s"):
        registry.schema(number)
    assert len(fake.asked) < 10, "it is asked again and again without a pause"


def test_a_port_without_a_registry_is_given_up(fake):
    settings = RegistrySettings(("http://127.0.0.1:1", fake.url), retry_s=5.0)
    assert SchemaRegistry(settings).register("a", SchemaText("AVRO", INT)) == 1, (
        "the second one was asked"
    )
    with pytest.raises(RegistryAway, match=r"does not answer \(Connection refused\) for 0 s"):
        SchemaRegistry(RegistrySettings(("http://127.0.0.1:1",), retry_s=0.0)).schema(1)


def test_known_ids_are_decoded_while_the_registry_is_away(fake):
    registry = SchemaRegistry(RegistrySettings((fake.url,), retry_s=0.2))
    schema = SchemaText("AVRO", INT)
    encoder = Encoder(AvroSchema(schema), "a", registry.register("a", schema))
    decoder = Decoder(registry, "avro", "a")
    value = encoder.encode({"x": 5})
    assert decoder.decode(value)[1] == {"x": 5}
    fake.away = 1_000
    assert decoder.decode(value)[1] == {"x": 5}
    with pytest.raises(RegistryAway):
        decoder.decode(b"\0\0\0\0\7\0")


def test_another_server_than_a_registry_makes_no_record_bad(fake):
    registry = SchemaRegistry(RegistrySettings((f"{fake.url}/elsewhere",), retry_s=1.0))
    with pytest.raises(RegistryError, match="does not answer as a schema registry does") as raised:
        registry.schema(1)
    assert not isinstance(raised.value, UnknownSchema)


def test_a_login_is_needed_and_sent(fake):
    fake.login = "alice:s3cret"
    with pytest.raises(RegistryError, match=r"refuses the login \(401\)"):
        SchemaRegistry(RegistrySettings((fake.url,))).schema(1)
    settings = read_settings({"url": fake.url, "basic.auth.user.info": "alice:s3cret"})
    assert SchemaRegistry(settings).register("a", SchemaText("AVRO", INT)) == 1
    assert "s3cret" not in repr(settings)
    assert "YWxpY2" not in repr(settings), "the password in base64"


def test_tls_is_checked_with_the_given_authority(tmp_path):
    stores = Stores(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stores.write("web.pem", stores.authority.issue().pem))
    with fake_registry(context) as fake:
        trust = stores.write("ca.pem", stores.authority.pem)
        settings = read_settings({"url": fake.url, "ssl.ca.location": trust})
        assert SchemaRegistry(settings).register("a", SchemaText("AVRO", INT)) == 1
        with pytest.raises(RegistryError, match="unable to get local issuer certificate"):
            SchemaRegistry(read_settings({"url": fake.url})).schema(1)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({}, "url is missing"),
        ({"url": "localhost:8081"}, "url must be http://HOST:PORT or https://HOST:PORT"),
        ({"url": "http://a:b@host"}, "url must have no login in it: use basic.auth.user.info"),
        ({"url": "http://h", "user": "x"}, "user is unknown; known: basic.auth.user.info, "),
        ({"url": "http://h", "basic.auth.user.info": "secret"}, "must be USER:PASSWORD"),
        ({"url": "http://h", "bearer.auth.token": "secret\n"}, "must be one line of printable"),
        (
            {"url": "http://h", "bearer.auth.token": "t", "basic.auth.user.info": "a:b"},
            "basic.auth.user.info and bearer.auth.token exclude each other",
        ),
        ({"url": "http://h", "ssl.ca.location": "x"}, "has no effect: no url begins with https"),
        ({"url": "https://h", "ssl.ca.location": "/none"}, "/none"),
        ({"url": "http://h", "retry.timeout.ms": "1s"}, "Expected a number of milliseconds"),
    ],
)
def test_wrong_settings_are_told_without_secrets(keys, error):
    with pytest.raises(ConfigError, match=error) as raised:
        read_settings(keys)
    assert "secret" not in str(raised.value)


def test_a_value_without_a_frame_has_no_id_in_its_reason(fake):
    decoder = Decoder(SchemaRegistry(RegistrySettings((fake.url,))), "avro", "a-value")
    with pytest.raises(BadRecord, match=r"^subject a-value: value does not begin with a magic"):
        decoder.decode(b"{}")
    assert fake.asked == []


@pytest.mark.parametrize("body", [{"status": "green"}, {"schema": 5, "id": "5", "version": 1}])
def test_json_of_another_server_is_told_too(fake, monkeypatch, body):
    monkeypatch.setattr(fake, "answer", lambda *_: (200, body))
    registry = SchemaRegistry(RegistrySettings((fake.url,)))
    for ask in (
        lambda: registry.schema(1),
        lambda: registry.version("a"),
        lambda: registry.register("a", SchemaText("AVRO", INT)),
    ):
        with pytest.raises(RegistryError, match="does not answer as a schema registry does"):
            ask()
