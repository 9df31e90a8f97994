"""The promises of the documents to an installation: `python features.py` prints how each ends.

It runs in an installation, outside the repository. A feature that ends without an error works; the
text of an error is what its user sees.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.client import cluster as clients
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember
from barnabas.client.offsets import EARLIEST
from barnabas.testing import Broker, Cluster, allow

HERE = Path(tempfile.mkdtemp(dir="."))
COMMAND = str(Path(sys.executable).parent / "barnabas")
JOB = """
name: copies
bootstrap: {servers}
source:
  topic: orders
  view: orders
  codec: json
  schema: {{id: string}}
sink:
  topic: copies
  from: orders
  codec: json
checkpoint: {directory}
"""


class CommandError(Exception):
    """A command that failed, with its standard error."""


def command(*words: str) -> str:
    done = subprocess.run(
        [COMMAND, *words], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise CommandError(done.stderr.strip())
    return done.stdout


def broker() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        broker.produce(topic, "1")
        assert [each.value for each in broker.records(topic, 1)] == [b"1"]


def cluster() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.move_leader(cluster.create_topic(replication_factor=2), 0, to=2)


def users() -> None:
    with Broker(users=["alice"], rules=[allow("alice", "Describe", "Topic:orders")]) as broker:
        broker.create_topic("orders")
        for settings in broker.settings("alice"), broker.certificate_settings("alice"):
            (HERE / "alice.properties").write_text(_lines(settings.java()))
            listed = command(
                *("topics", "list", "-b", settings.bootstrap_servers),
                *("--command-config", str(HERE / "alice.properties")),
            )
            assert "orders" in listed, listed


def secure_serve() -> None:
    with subprocess.Popen(
        [COMMAND, "serve", "--secure", "-l", "127.0.0.1:0", "-d", str(HERE / "secured")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline():
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    if process.returncode:
        raise CommandError(errors.strip())


def key_store_of_pkcs12() -> None:
    file = HERE / "store.p12"
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12

        from barnabas.security.authority import Authority

        pem = Authority.new("CA").issue("broker", ["127.0.0.1"])
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificate(pem)
        secret = serialization.BestAvailableEncryption(b"secret")
        file.write_bytes(
            pkcs12.serialize_key_and_certificates(b"it", key, certificate, None, secret)
        )
    except ImportError:
        file.write_bytes(b"")
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(file),
        "ssl.keystore.password": "secret",
    }
    Broker(keys).start().stop()


def logins_with_tokens() -> None:
    (HERE / "keys.json").write_text('{"keys": []}')
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (HERE / "keys.json").absolute().as_uri(),
    }
    Broker(keys).start().stop()


def stored_passwords() -> None:
    with Broker({"password.encoder.secret": "secret"}) as broker:
        command(
            *("configs", "alter", "broker", "0", "-b", broker.bootstrap_servers),
            *("--set", "listener.name.plaintext.ssl.keystore.password=other"),
        )


def pattern_of_transactional_ids() -> None:
    with Broker() as broker:
        command("transactions", "list", "-b", broker.bootstrap_servers, "--pattern", "orders-.*")


def subscription_by_expression() -> None:
    async def assigned(servers: str) -> None:
        async with clients.Cluster(servers) as cluster:
            consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
            member = GroupMember(
                cluster, consumer, "g", protocol="consumer", expression="orders-.*"
            )
            async with member, asyncio.timeout(30):
                while not consumer.positions:
                    await member.ensure_joined()
                    await asyncio.sleep(0.1)

    with Broker() as broker:
        broker.create_topic("orders-1")
        asyncio.run(assigned(broker.bootstrap_servers))


def rule_for_principals() -> None:
    Broker({"ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=.*$/$1/"}).start().stop()
    from barnabas.security.principal_mapping import parse_rules

    assert parse_rules("RULE:^CN=(.*?),OU=.*$/$1/")("CN=duke,OU=it") == "duke"


def state_of_a_job() -> None:
    file = HERE / "job.yaml"
    with Broker() as broker:
        file.write_text(JOB.format(servers=broker.bootstrap_servers, directory=HERE / "checkpoint"))
        broker.create_topic("orders")
        command("pipeline", "status", str(file))


def data_source() -> None:
    import pyspark_barnabas

    source: Any = pyspark_barnabas.DefaultSource
    assert source.name() == "barnabas"


def console() -> None:
    with (
        Broker() as broker,
        subprocess.Popen(
            [COMMAND, "console", "-b", broker.bootstrap_servers, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        if line := process.stdout.readline():
            with urllib.request.urlopen(json.loads(line)["url"]) as page:
                assert b"Overview" in page.read()
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    if process.returncode:
        raise CommandError(errors.strip())


def values_with_a_schema() -> None:
    from barnabas.registry.client import SchemaText
    from barnabas.registry.codecs import use_of

    for codec, kind, text, value in (
        ("avro", "AVRO", '"int"', "5"),
        ("protobuf", "PROTOBUF", 'syntax = "proto3"; message A { int32 x = 1; }', '{"x": 5}'),
        ("json-schema", "JSON", '{"type": "integer"}', "5"),
    ):
        schema = use_of(codec)(SchemaText(kind, text), None)
        written = schema.write(schema.from_json(value))
        assert schema.to_json(schema.read(written, None)) == value


FEATURES: dict[Callable[[], None], str] = {
    broker: "",
    cluster: "",
    users: "security",
    secure_serve: "security",
    key_store_of_pkcs12: "security",
    logins_with_tokens: "security",
    stored_passwords: "security",
    console: "console",
    pattern_of_transactional_ids: "re2",
    subscription_by_expression: "re2",
    rule_for_principals: "re2",
    values_with_a_schema: "formats",
    state_of_a_job: "spark",
    data_source: "spark",
}
"""The features, each with the extra that it needs."""


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _error(feature: Callable[[], None]) -> str:
    try:
        feature()
    except Exception as error:
        return str(error) or repr(error)
    return ""


if __name__ == "__main__":
    print(json.dumps({each.__name__: (extra, _error(each)) for each, extra in FEATURES.items()}))
