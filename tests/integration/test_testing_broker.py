"""The broker for tests of other projects, and the pytest plugin that provides it."""

import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.testing import Broker
from barnabas.testing import Cluster as Brokers
from barnabas.testing.plugin import barnabas_broker, barnabas_session_broker

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0

__all__ = ["barnabas_broker", "barnabas_session_broker"]

_session_servers: set[str] = set()


def produce(servers: str, topic: str, value: bytes) -> int:
    """Produce with librdkafka, which blocks; return the record's offset."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    offsets: list[int] = []
    producer.produce(topic, value, on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(DEADLINE) == 0
    return offsets[0]


def test_a_blocking_client_in_a_synchronous_test(barnabas_broker: Broker) -> None:
    assert produce(barnabas_broker.bootstrap_servers, "sync", b"1") == 0


async def test_an_asynchronous_test(barnabas_broker: Broker) -> None:
    async with Cluster(barnabas_broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
        delivered = await producer.send("async", b"1")
        await producer.flush()
        assert delivered.result().offset == 0


async def test_a_blocking_client_in_an_asynchronous_test(barnabas_broker: Broker) -> None:
    assert produce(barnabas_broker.bootstrap_servers, "both", b"1") == 0


def test_a_client_in_another_process(barnabas_broker: Broker) -> None:
    program = (
        "import sys, kafka\n"
        "producer = kafka.KafkaProducer(bootstrap_servers=sys.argv[1])\n"
        "print(producer.send('other', b'1').get(20).offset)\n"
        "producer.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, barnabas_broker.bootstrap_servers],
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == b"0\n"


@pytest.mark.xdist_group("session-broker")  # A session is one worker's.
@pytest.mark.parametrize("turn", [0, 1])
def test_the_session_broker_is_shared(barnabas_session_broker: Broker, turn: int) -> None:
    servers = barnabas_session_broker.bootstrap_servers
    assert produce(servers, f"session-{turn}", b"1") == 0
    _session_servers.add(servers)
    assert _session_servers == {servers}


@pytest.mark.parametrize("turn", [0, 1])
def test_each_test_has_a_broker_of_its_own(barnabas_broker: Broker, turn: int) -> None:
    assert produce(barnabas_broker.bootstrap_servers, "own", b"%d" % turn) == 0


USE_TWICE = """
import asyncio, gc, os, socket, sys, tempfile, threading, warnings

import barnabas.testing
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer

tempfile.tempdir, kind = sys.argv[1:]


def traces():
    # The threads of the process, and the targets of its file descriptors.
    gc.collect()
    with os.scandir("/proc/self/fd") as entries:
        descriptors = [os.readlink(entry.path) for entry in entries]
    return {thread.name for thread in threading.enumerate()}, sorted(
        name for name in descriptors if not name.startswith("/proc")
    )


async def use(servers):
    async with Cluster(servers) as cluster, Producer(cluster) as producer:
        await Admin(cluster).create_topic("t", partitions=3)
        await producer.send("t", b"1")


def once():
    with getattr(barnabas.testing, kind)() as started:
        assert os.listdir(tempfile.tempdir)
        asyncio.run(use(started.bootstrap_servers))
        servers = started.bootstrap_servers.split(",")
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            continue
        raise AssertionError(f"{server} still listens")


once()
before = traces()
with warnings.catch_warnings():
    warnings.simplefilter("error")
    once()
    after = traces()
    assert after == before, (after, before)
assert os.listdir(tempfile.tempdir) == []
"""


def run_alone(program: str, *arguments: str) -> None:
    """Run a program in a process of its own.

    Other brokers of this process open and close files meanwhile.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["Broker", "Cluster"])
def test_it_leaves_no_threads_or_files(kind: str, tmp_path: Path) -> None:
    run_alone(USE_TWICE, str(tmp_path), kind)


USE_WITHOUT_COLLECTOR = """
import gc, os

import confluent_kafka

from barnabas.testing import Broker

with Broker():
    pass
gc.collect()
before = len(os.listdir("/proc/self/fd"))
gc.disable()
with Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"1")
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    )
    consumer.subscribe(["t"])
    # This creates fifty empty logs of the offsets topic.
    consumer.poll(1)
    consumer.close()
    del producer, consumer
after = len(os.listdir("/proc/self/fd"))
assert after <= before, (after, before)
"""


def test_broker_closes_all_its_files_itself() -> None:
    run_alone(USE_WITHOUT_COLLECTOR)


def test_broker_is_ready_within_half_a_second() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        with Broker():
            return time.perf_counter() - began

    assert min(seconds() for _ in range(3)) < 0.5


def test_broker_keeps_its_data_in_a_given_directory(tmp_path: Path) -> None:
    for offset in range(2):
        with Broker(data_dir=tmp_path) as broker:
            assert produce(broker.bootstrap_servers, "kept", b"1") == offset


def test_configurations_reach_the_broker() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        )
        topics = consumer.list_topics("absent", timeout=DEADLINE).topics
        assert topics["absent"].error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        consumer.close()


@pytest.mark.parametrize("make", [Broker, partial(Brokers, brokers=1)])
def test_values_are_texts_numbers_and_booleans(make: Callable[..., Any]) -> None:
    given = {
        "auto.create.topics.enable": False,
        "num.partitions": 2,
        "log.retention.ms": "3000",
        "log.cleaner.min.cleanable.ratio": 0.25,
    }
    with make(given) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (node,) = admin.list_topics(timeout=DEADLINE).brokers
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
        found = admin.describe_configs([resource])[resource].result(DEADLINE)
    assert {key: found[key].value for key in given} == {
        "auto.create.topics.enable": "false",
        "num.partitions": "2",
        "log.retention.ms": "3000",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }
    for wrong in (None, [1], b"1"):
        with pytest.raises(TypeError, match=r"num\.partitions: .* is not a text, a number"):
            make({"num.partitions": wrong})


@pytest.mark.parametrize("make", [Broker, Brokers, partial(Brokers, processes=True)])
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num.partition", 1, r"num\.partition \(did you mean num\.partitions\?\)"),
        ("quite.unknown", 1, r"Unknown configuration keys: quite\.unknown$"),
        ("num.partitions", "many", r"Invalid value many for configuration num\.partitions"),
    ],
)
def test_unknown_keys_and_wrong_values_are_errors_that_name_them(
    make: Callable[..., Any], key: str, value: object, words: str
) -> None:
    with pytest.raises(ValueError, match=words), make({key: value}):
        pass


def test_start_raises_the_error_that_prevents_it(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    broker = Broker(data_dir=blocked)
    with pytest.raises(OSError, match="file"):
        broker.start()
    broker.stop()
    with pytest.raises(Exception, match="keys of security"):
        Broker({"sasl.kerberos.service.name": "kafka"}).start()


@pytest.mark.parametrize("make", [Broker, Brokers, partial(Brokers, processes=True)])
def test_late_start_says_so_and_leaves_nothing(make: Callable[..., Any], tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(TimeoutError, match=r"^the (broker|cluster) did not start within 0\.001 s$"):
        make(data_dir=tmp_path, start_timeout=0.001).start()
    assert {thread.name for thread in threading.enumerate()} == before
    make(data_dir=tmp_path).start().stop()


@pytest.mark.parametrize("make", [Broker, Brokers])
@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "30"])
def test_limit_of_a_start_is_a_positive_number(make: Callable[..., Any], wrong: object) -> None:
    with pytest.raises(ValueError, match=r"start_timeout: .* is not a positive number of seconds"):
        make(start_timeout=wrong)


@pytest.mark.parametrize("make", [Broker, Brokers])
def test_start_without_a_package_raises_at_once(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(ImportError, match="uvloop"):
        make().start()


def test_second_start_raises_and_second_stop_does_nothing() -> None:
    broker = Broker().start()
    with pytest.raises(RuntimeError, match="is running"):
        broker.start()
    broker.stop()
    broker.stop()
    broker.start().stop()


def pytest_run(directory: Path, test: str) -> str:
    (directory / "test_it.py").write_text(test)
    # If the distribution is installed, its entry point would register the plugin a second time.
    plugin = ["-p", "no:barnabas", "-p", "barnabas.testing.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, str(directory)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_plugin_imports_nothing_in_a_run_without_its_fixtures(tmp_path: Path) -> None:
    pytest_run(
        tmp_path,
        "import sys\n"
        "def test_nothing_is_imported():\n"
        "    ours = {name for name in sys.modules if name.startswith('barnabas')}\n"
        "    assert ours == {'barnabas', 'barnabas.testing', 'barnabas.testing.plugin'}\n"
        "    assert not sys.modules.keys() & {'uvloop', 'crc32c', 'pydantic', 'structlog'}\n",
    )


def test_the_plugin_gives_all_fixtures(tmp_path: Path) -> None:
    pytest_run(
        tmp_path,
        "def test_all(barnabas_broker, barnabas_session_broker, barnabas_cluster):\n"
        "    fixtures = barnabas_broker, barnabas_session_broker, barnabas_cluster\n"
        "    assert len({each.bootstrap_servers for each in fixtures}) == 3\n",
    )


def test_an_installed_distribution_announces_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"barnabas": "barnabas.testing.plugin"}
