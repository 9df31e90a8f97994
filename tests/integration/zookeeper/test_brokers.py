"""Complete brokers on ZooKeeper: the nodes that they write, and their behaviour without it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import NoAuthError

from barnabas.broker.app import Broker
from barnabas.broker.cluster import znodes
from barnabas.protocol.types import uuid_from_text
from barnabas.storage.opening.dir_marks import BOOT_ID
from tests.integration.zookeeper.brokers_in_loop import cluster, properties, servers
from tests.support import waiting
from tests.support.command_line import Served, run
from tests.support.waiting import eventually
from tests.support.zookeeper import ZooKeeperServer

SECONDS = 20.0


def create_topic(at: str, name: str, partitions: int) -> None:
    config = {"min.insync.replicas": "2"}
    admin = AdminClient({"bootstrap.servers": at, "log_level": 0})
    for done in admin.create_topics([NewTopic(name, partitions, 3, config=config)]).values():
        done.result(SECONDS)


def created(at: str, name: str) -> bool:
    """Return whether the topic was created; False while there is no controller."""
    try:
        create_topic(at, name, 3)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_CONTROLLER:
            raise
        return False
    return True


def produce(at: str, topic: str, partitions: int, count: int = 60) -> None:
    """Produce records; return when all in-sync replicas have them."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": at, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(
            topic,
            b"value",
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert failures == []


def kinds_of(broker: Broker) -> list[str]:
    """Return the kinds of a broker's events, oldest first."""
    return [each["kind"] for each in json.loads(broker._events.after(0))["events"]]


def state(server: ZooKeeperServer, chroot: str, partition: int) -> dict[str, Any]:
    with server.looking(chroot) as client:
        data, _ = client.get(znodes.state_path("t", partition))
        value: dict[str, Any] = json.loads(data)
        return value


async def until(holds: Callable[[], bool]) -> None:
    """Wait in the loop for a condition that asks a server."""
    await eventually(lambda: asyncio.to_thread(holds))


async def test_znodes_have_kafkas_format(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with cluster(server, chroot, tmp_path) as brokers:
        await asyncio.to_thread(create_topic, servers(brokers), "t", 2)
        producer = Producer(
            {"bootstrap.servers": servers(brokers), "enable.idempotence": True, "log_level": 0}
        )
        producer.produce("t", b"")
        assert await asyncio.to_thread(producer.flush, SECONDS) == 0
        nodes = await asyncio.to_thread(all_nodes, server, chroot)
        members = [broker._core.membership for broker in brokers]
    registration = nodes["/brokers/ids/2"]
    assert registration["version"] == 5
    assert registration["endpoints"] == [
        f"{name}://127.0.0.1:{brokers[1].ports[name]}" for name in ("PLAINTEXT", "BROKERS")
    ]
    assert registration["listener_security_protocol_map"] == {
        "PLAINTEXT": "PLAINTEXT",
        "BROKERS": "PLAINTEXT",
    }
    assert (registration["rack"], registration["restart"]) == ("r2", "empty")
    topic = nodes["/brokers/topics/t"]
    assert topic["version"] == 3
    assert {tuple(sorted(ids)) for ids in topic["partitions"].values()} == {(1, 2, 3)}
    assert len(uuid_from_text(topic["topic_id"])) == 16
    for partition in ("0", "1"):
        leader_and_isr = nodes[f"/brokers/topics/t/partitions/{partition}/state"]
        assert sorted(leader_and_isr.pop("isr")) == [1, 2, 3]
        # Our own node: with it no registration is overlooked.
        assert leader_and_isr.pop("judged_until") == max(each.broker_epoch for each in members)
        assert leader_and_isr == {
            "controller_epoch": 1,
            "leader": topic["partitions"][partition][0],
            "version": 1,
            "leader_epoch": 0,
        }
    assert nodes["/controller"].keys() == {"version", "brokerid", "timestamp"}
    assert nodes["/controller_epoch"] == 1
    assert nodes["/cluster/id"] == {"version": "1", "id": brokers[0]._cluster_id}
    assert nodes["/config/topics/t"] == {"version": 1, "config": {"min.insync.replicas": "2"}}
    block = nodes["/latest_producer_id_block"]
    assert (block["version"], int(block["block_end"]) - int(block["block_start"])) == (1, 999)
    assert (nodes["/feature"]["version"], nodes["/feature"]["status"]) == (2, 1)
    assert {"/admin/delete_topics", "/config/changes", "/config/brokers"} <= nodes.keys()


async def test_nodes_of_brokers_with_a_digest_can_be_changed_by_them_only(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    digest = tmp_path / "digest"
    digest.write_text("broker:s3cret")
    more = {"zookeeper_set_acl": "true", "zookeeper_digest_file": str(digest)}
    async with cluster(server, chroot, tmp_path, **more) as brokers:
        await asyncio.to_thread(create_topic, servers(brokers), "t", 3)
        await asyncio.to_thread(produce, servers(brokers), "t", 3)
        nodes = await asyncio.to_thread(all_nodes, server, chroot, "/brokers")
        assert "/brokers/topics/t/partitions/2/state" in nodes

        def intrude() -> None:
            with server.looking(chroot) as stranger:
                for path in nodes:
                    with pytest.raises(NoAuthError):
                        stranger.set(path, b"")

        await asyncio.to_thread(intrude)


def all_nodes(server: ZooKeeperServer, chroot: str, path: str = "") -> dict[str, Any]:
    with server.looking(chroot) as client:

        def below(path: str) -> Iterator[tuple[str, Any]]:
            data, _ = client.get(path or "/")
            yield path, json.loads(data) if data else None
            for child in client.get_children(path or "/"):
                yield from below(f"{path}/{child}")

        return dict(below(path))


@pytest.mark.parametrize("broker_id", [1, 3], ids=["the controller", "a follower"])
async def test_broker_with_an_expired_session_gets_a_new_epoch_and_keeps_running(
    server: ZooKeeperServer, chroot: str, tmp_path: Path, broker_id: int
) -> None:
    async with cluster(server, chroot, tmp_path) as brokers:
        at = servers(brokers)
        await asyncio.to_thread(create_topic, at, "t", 3)
        await asyncio.to_thread(produce, at, "t", 3)
        core = brokers[broker_id - 1]._core
        before, key = core.membership.broker_epoch, core.store.key  # type: ignore[attr-defined]
        await asyncio.to_thread(server.expire, *key)
        await until(lambda: core.membership.broker_epoch > before)
        await asyncio.to_thread(produce, at, "t", 3)
        for partition in range(3):
            await until(lambda p=partition: len(state(server, chroot, p)["isr"]) == 3)  # type: ignore[misc]
        assert not any(broker.failed.is_set() for broker in brokers)
        kinds = kinds_of(brokers[broker_id - 1])
        assert [each for each in kinds if each.startswith("session_")] == [
            "session_lost",
            "session_back",
        ]


async def test_without_zookeeper_healthy_partitions_are_written(
    own_server: ZooKeeperServer, tmp_path: Path
) -> None:
    session = {"zookeeper_session_timeout_ms": "1500"}
    async with cluster(own_server, "/kafka", tmp_path, **session) as brokers:
        at = servers(brokers)
        await asyncio.to_thread(create_topic, at, "t", 3)
        await asyncio.to_thread(produce, at, "t", 3)
        own_server.kill()
        members = [broker._core.membership for broker in brokers]
        await until(lambda: not any(member.is_connected for member in members))
        gone = time.monotonic()
        while time.monotonic() - gone < 2.0:
            await asyncio.to_thread(produce, at, "t", 3)
        await asyncio.to_thread(own_server.start)
        await until(lambda: all(member.is_connected for member in members))
        await until(lambda: created(at, "later"))
        await asyncio.to_thread(produce, at, "later", 3)
        for broker in brokers:
            await until(lambda each=broker: "store_back" in kinds_of(each))  # type: ignore[misc]
            assert kinds_of(broker).index("store_silent") < kinds_of(broker).index("store_back")
        for partition in range(3):
            await until(lambda p=partition: len(state(own_server, "/kafka", p)["isr"]) == 3)  # type: ignore[misc]
        assert not any(broker.failed.is_set() for broker in brokers)


# -- processes -------------------------------------------------------------------------------------


class Process:
    """`barnabas serve` on ZooKeeper."""

    def __init__(self, given: dict[str, str]) -> None:
        sets = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
        self.served = Served(*sets)
        host, _, port = self.served.servers.rpartition(":")
        self.address = host, int(port)

    def signal(self, number: int) -> None:
        os.kill(self.served.process.pid, number)

    def end(self) -> None:
        self.served.process.kill()
        self.served.process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[[dict[str, str]], Process]]:
    running: list[Process] = []

    def started(given: dict[str, str]) -> Process:
        running.append(Process(given))
        return running[-1]

    yield started
    for process in running:
        process.end()


def test_restarted_broker_does_not_wait_for_its_old_session(
    server: ZooKeeperServer,
    chroot: str,
    tmp_path: Path,
    start: Callable[[dict[str, str]], Process],
) -> None:
    given = properties(server, chroot, 1, tmp_path) | {"zookeeper.session.timeout.ms": "30000"}
    mark = Path(given["log.dirs"]) / BOOT_ID
    for restart in ("empty", "killed", "killed"):
        began = time.monotonic()
        process = start(given)
        assert time.monotonic() - began < 10
        with server.looking(chroot) as client:
            assert json.loads(client.get("/brokers/ids/1")[0])["restart"] == restart
        # Clients need not wait for the mark by which the next run recognises this one.
        waiting.until(mark.exists)
        process.end()


def test_id_of_a_live_broker_is_refused_to_another(
    server: ZooKeeperServer,
    chroot: str,
    tmp_path: Path,
    start: Callable[[dict[str, str]], Process],
) -> None:
    short = {"zookeeper.session.timeout.ms": "1500"}
    start(properties(server, chroot, 1, tmp_path / "one") | short)
    given = properties(server, chroot, 1, tmp_path / "other") | short
    sets = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    done = run("serve", *sets)
    assert done.returncode == 1
    assert b"a broker with id 1 is running: give this one another broker.id" in done.stderr


def test_zookeeper_that_comes_back_empty_is_named(
    own_server: ZooKeeperServer,
    tmp_path: Path,
    start: Callable[[dict[str, str]], Process],
) -> None:
    given = properties(own_server, "/kafka", 1, tmp_path / "data")
    given["zookeeper.session.timeout.ms"] = "1500"
    process = start(given)
    own_server.kill()
    shutil.rmtree(own_server.directory / "data")
    own_server.start()
    errors = process.served.process.stderr
    assert errors is not None
    said = next(line for line in iter(errors.readline, b"") if b'"level": "error"' in line)
    assert b"ZooKeeper came back empty: restore its data" in said
    process.end()
    # A new start makes no other cluster there.
    done = run("serve", *(part for pair in given.items() for part in ("--set", "=".join(pair))))
    assert done.returncode == 1
    assert b"the metadata store is empty, and " in done.stderr
    with own_server.looking("") as client:
        assert client.exists("/kafka/cluster/id") is None


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("connection.timeout.ms", "300", b"ZooKeeper cannot be reached at 127.0.0.1:1: "),
        ("digest.file", "/nowhere", b"zookeeper.digest.file cannot be read: /nowhere"),
    ],
)
def test_connection_error_of_zookeeper_is_reported_in_one_line(
    tmp_path: Path, key: str, value: str, said: bytes
) -> None:
    done = run(
        *("serve", "--set", "zookeeper.connect=127.0.0.1:1", "--set", f"log.dirs={tmp_path}"),
        *("--set", f"zookeeper.{key}={value}"),
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0"),
        *("--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT"),
        *("--set", "inter.broker.listener.name=BROKERS"),
    )
    assert done.returncode == 1
    assert b"\nbarnabas: " + said in b"\n" + done.stderr
    assert b"Traceback" not in done.stderr


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def test_broker_paused_past_its_session_serves_only_after_registering_again(
    own_server: ZooKeeperServer,
    tmp_path: Path,
    start: Callable[[dict[str, str]], Process],
) -> None:
    given = properties(own_server, "", 1, tmp_path) | {"zookeeper.session.timeout.ms": "1500"}
    process = start(given)
    with socket.create_connection(process.address, SECONDS) as client:
        client.sendall(API_VERSIONS)
        assert client.recv(4)
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while client.recv(1 << 16):
                pass
        process.signal(signal.SIGSTOP)
        with own_server.looking() as looking:
            give_up = time.monotonic() + SECONDS
            while looking.exists("/brokers/ids/1") and time.monotonic() < give_up:
                time.sleep(0.02)
            assert not looking.exists("/brokers/ids/1")
        own_server.pause()
        client.sendall(API_VERSIONS)
        process.signal(signal.SIGCONT)
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.recv(4)
        own_server.resume()
        client.settimeout(SECONDS)
        assert client.recv(4)
    with own_server.looking() as looking:
        assert looking.exists("/brokers/ids/1")
