"""SASL between our client, our command line and our broker."""

import asyncio
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.client.security import connect_with
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.certificates import Stores
from tests.support.command_line import run
from tests.support.data_path import running

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def broker_keys(protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {
        "listeners": f"{protocol}://localhost:0",
        "security.inter.broker.protocol": protocol,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{MODULE} user_alice="alice-secret";',
        "connection.failed.authentication.delay.ms": "1",
    }


def client_keys(protocol: str = "SASL_PLAINTEXT", password: str = "alice-secret") -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} username="alice" password="{password}";',
    }


async def test_client_produces_and_consumes_over_sasl_ssl(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    keys = broker_keys("SASL_SSL") | stores.identity()
    connect = connect_with(client_keys("SASL_SSL") | stores.trust())
    async with (
        running(tmp_path / "log", properties=keys) as broker,
        Cluster(broker.bootstrap_servers, connect=connect) as cluster,
    ):
        await Admin(cluster).create_topic("orders", partitions=1)
        async with Producer(cluster) as producer:
            await producer.send("orders", b"one", partition=0)
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition("orders", 0): EARLIEST})
        assert [each.value for each in await consumer.poll()] == [b"one"]


async def test_wrong_password_fails_at_once(tmp_path: Path) -> None:
    connect = connect_with(client_keys(password="wrong"))
    async with running(tmp_path / "log", properties=broker_keys()) as broker:
        cluster = Cluster(broker.bootstrap_servers, connect=connect, timeout=3600)
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await cluster.retrying(lambda: cluster.refresh(()))
        await cluster.close()


async def test_producer_outlives_its_sessions(tmp_path: Path) -> None:
    """Each record is in its place though the client logs in several times meanwhile."""
    keys = broker_keys() | {"connections.max.reauth.ms": "100"}
    async with (
        running(tmp_path / "log", properties=keys) as broker,
        Cluster(broker.bootstrap_servers, connect=connect_with(client_keys())) as cluster,
    ):
        await Admin(cluster).create_topic("orders", partitions=1)
        authentication = broker._metrics.requests.authentication
        logins = authentication.succeeded_again.cell("SASL_PLAINTEXT")
        sent: list[bytes] = []
        async with Producer(cluster) as producer:
            while logins.value < 3:
                sent.append(b"%d" % len(sent))
                written = await producer.send("orders", sent[-1], partition=0)
                if len(sent) % 5 == 0:
                    await written
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition("orders", 0): EARLIEST})
        found: list[bytes | None] = []
        while len(found) < len(sent):
            found += [each.value for each in await consumer.poll()]
    assert found == sent


async def test_commands_log_in_with_their_command_config(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.properties", tmp_path / "bad.properties"
    for file, keys in ((good, client_keys()), (bad, client_keys(password="wr0ng"))):
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    async with running(tmp_path / "log", properties=broker_keys()) as broker:
        at = broker.bootstrap_servers

        async def command(*words: str, file: Path = good) -> tuple[bool, bytes]:
            arguments = (*words, "--command-config", str(file))
            done = await asyncio.to_thread(run, *arguments, servers=at)
            return done.returncode == 0, done.stdout + done.stderr

        assert (await command("topics", "create", "orders"))[0]
        assert b"orders" in (await command("topics", "list"))[1]
        assert (await command("groups", "list"))[0]
        succeeded, text = await command("groups", "list", file=bad)
        assert not succeeded
        assert b"SASL_AUTHENTICATION_FAILED" in text
        assert b"--command-config" in text
        assert b"wr0ng" not in text
