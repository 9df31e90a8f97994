"""`barnabas cluster up` and `serve --processes`: several brokers under one supervisor."""

import asyncio
import os
import re
import resource
import signal
import socket
import time
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.cluster.znodes import encode_controller
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.broker.store.socket_server import StoreServer
from barnabas.storage.files.files import OsFiles
from tests.support.ports import ports_in_a_row
from tests.support.supervised import DEADLINE, alive, running
from tests.support.waiting import call_within, until
from tests.support.zookeeper import chroot_of, shared_server

UP = ("cluster", "up", "--listen", "127.0.0.1:0")


def produce(servers: str, topic: str, value: bytes, partition: int = -1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    errors = []
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
    )
    assert producer.flush(DEADLINE) == 0
    assert errors == [None]


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    deadline, values = time.monotonic() + DEADLINE, []
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def unix_connections(directory: Path) -> int:
    """Return the accepted connections at the Unix sockets of brokers."""
    name = rf" 0001 03 +\d+ {re.escape(str(directory))}/127\.0\.0\.1:\d+\.socket$"
    return len(re.findall(name, Path("/proc/net/unix").read_text(), re.M))


def test_cluster_up_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    address = tmp_path / "address"
    data = ("--data", str(tmp_path), "--address-file", str(address))
    with running(*UP, *data) as parent:
        servers = parent.serves()
        assert address.read_text() == f"{servers}\n"
        metadata = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE)
        assert sorted(metadata.brokers) == [1, 2, 3]
        produce(servers, "kept", b"1")
        # Of the controller to the others, at least.
        assert unix_connections(tmp_path) >= 2
        children = parent.children()
        assert len(children) == 3
        parent.process.send_signal(signal.SIGINT)
        assert parent.ends() == 0
        assert not any(map(alive, children))
        assert list(tmp_path.glob("*.socket")) == []
        assert not address.exists()
    with running(*UP, *data) as parent:
        assert consume(parent.serves(), "kept", 1) == [b"1"]
        parent.process.terminate()
        assert parent.ends() == 0


def test_a_broker_that_dies_is_reported_and_started_again(tmp_path: Path) -> None:
    with running(*UP, "--data", str(tmp_path)) as parent:
        servers = parent.serves()
        told, directories = [], []
        for each in (1, 2, 3):
            told.append(parent.says(rf"^  broker {each}:  (\S+), process (\d+),"))
            # The directory has a line of its own if its path is long.
            place = re.search("data in (.+)$", parent.said[-1]) or parent.says("data in (.+)$")
            directories.append(Path(place[1]))
        assert [each[1] for each in told] == servers.split(",")
        assert [int(each[2]) for each in told] == parent.children()
        assert directories == [tmp_path, tmp_path / "broker.2", tmp_path / "broker.3"]
        assert all((each / "meta.properties").exists() for each in directories)
        os.kill(int(told[1][2]), signal.SIGKILL)
        assert parent.says(r"broker (\d) ended \(SIGKILL\); restart in")[1] == "2"
        _, again, pid = parent.says(r"broker 2 serves (\S+) again, process (\d+)").group(0, 1, 2)
        assert int(pid) in parent.children()
        admin = AdminClient({"bootstrap.servers": again})
        until(lambda: len(admin.list_topics(timeout=DEADLINE).brokers) == 3)
        produce(servers, "after", b"1")
        parent.process.terminate()
        assert parent.ends() == 0


def test_watch_of_the_health_goes_on_while_no_broker_answers(tmp_path: Path) -> None:
    listen = ("--listen", f"127.0.0.1:{ports_in_a_row(6)}")
    with running("cluster", "up", *listen, "--data", str(tmp_path)) as parent:
        address, pid = parent.says(r"broker 1:  (\S+), process (\d+)").group(1, 2)
        with running("cluster", "health", "--watch", "-b", address) as watch:
            watch.says("The cluster is healthy")
            os.kill(int(pid), signal.SIGKILL)
            watch.says(f"brokers\tcluster\tcannot reach {address}")
            watch.says("The cluster is healthy")
            watch.process.kill()
        parent.process.terminate()
        assert parent.ends() == 0


def test_brokers_end_with_their_supervisor_and_the_next_one_starts_on_their_data(
    tmp_path: Path,
) -> None:
    with running(*UP, "--data", str(tmp_path)) as parent:
        produce(parent.serves(), "kept", b"1")
        children = parent.children()
        parent.process.kill()
        until(lambda: not any(map(alive, children)))
    with running(*UP, "--data", str(tmp_path)) as parent:
        assert consume(parent.serves(), "kept", 1) == [b"1"]


async def test_broker_waiting_for_the_controller_stops_on_sigterm(tmp_path: Path) -> None:
    store = await open_store(OsFiles(), str(tmp_path / "metadata"), InlineOffload())
    server = StoreServer(store)
    await server.serve(str(tmp_path / "socket"))
    session = store.session()
    for path in ("/brokers", "/brokers/ids"):
        await session.create(path)
    # A registered controller that does not exist, and so never answers.
    await session.create("/controller", encode_controller(99, 0), ephemeral=True)
    registered = asyncio.Event()
    session.watch_children("/brokers/ids", lambda _: registered.set())
    properties = {
        "metadata.socket": str(tmp_path / "socket"),
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "log.dirs": str(tmp_path / "logs"),
    }
    settings = (f"--set={key}={value}" for key, value in properties.items())
    with running("serve", *settings) as waiting:
        async with asyncio.timeout(DEADLINE):
            await registered.wait()
        waiting.process.terminate()
        assert await asyncio.to_thread(waiting.ends) == 0
    await server.close()
    await store.close()


def test_cluster_up_ends_if_one_broker_cannot_start(tmp_path: Path) -> None:
    # Three ports for clients, and three for the connections between brokers.
    first = ports_in_a_row(6)
    with socket.create_server(("127.0.0.1", first + 2)):
        arguments = ("cluster", "up", "--listen", f"127.0.0.1:{first}", "--data", str(tmp_path))
        with running(*arguments) as parent:
            assert parent.ends() == 1
    said = "".join(parent.said)
    assert "broker 3: " in said
    assert "Address already in use" in said
    assert said.rstrip().splitlines()[-1] == "barnabas: broker 3 did not start"


def test_cluster_up_ends_if_metadata_cannot_be_written(tmp_path: Path) -> None:
    with running(*UP, "--data", str(tmp_path)) as parent:
        servers = parent.serves()
        children = parent.children()
        resource.prlimit(parent.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 3)], request_timeout=1)
        assert parent.ends() == 1
        assert not any(map(alive, children))
    said = "".join(parent.said).rstrip().splitlines()
    assert said[-1] == "barnabas: the metadata could not be written; all brokers were stopped"


def test_second_ctrl_c_kills_the_brokers_at_once(tmp_path: Path) -> None:
    with running(*UP, "--data", str(tmp_path)) as parent:
        parent.serves()
        children = parent.children()
        # A paused broker does not react to SIGTERM, and the supervisor would wait for it.
        os.kill(children[0], signal.SIGSTOP)
        parent.process.send_signal(signal.SIGINT)
        parent.process.send_signal(signal.SIGINT)
        parent.ends()
        assert not any(map(alive, children))


def test_one_broker_becomes_several_and_keeps_its_data(tmp_path: Path) -> None:
    place = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*place) as one:
        produce(one.says(r"Barnabas serves (\S+);")[1], "kept", b"1")
        one.process.terminate()
        assert one.ends() == 0
    with running(*place, "--processes", "2", "--log-level", "error") as parent:
        servers = parent.serves()
        admin = AdminClient({"bootstrap.servers": servers})
        assert sorted(admin.list_topics(timeout=DEADLINE).brokers) == [0, 1]
        assert consume(servers, "kept", 1) == [b"1"]
        parent.process.terminate()
        assert parent.ends() == 0


def replicas(admin: AdminClient, topic: str) -> int:
    """Return the number of replicas of each partition of a topic, once it is known."""
    until(lambda: topic in admin.list_topics(timeout=DEADLINE).topics)
    partitions = admin.list_topics(timeout=DEADLINE).topics[topic].partitions.values()
    (number,) = {len(each.replicas) for each in partitions}
    return number


def use_internal_topics(servers: str) -> None:
    """Commit a transaction, with an offset of a group."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "x"})
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce("used", b"1")
    group = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    offsets = [confluent_kafka.TopicPartition("used", 0, 0)]
    member = group.consumer_group_metadata()
    call_within(DEADLINE, lambda: producer.send_offsets_to_transaction(offsets, member, DEADLINE))
    producer.commit_transaction(DEADLINE)
    assert group.committed(offsets, DEADLINE)[0].offset == 0
    group.close()


INTERNAL = ("__consumer_offsets", "__transaction_state")
SERVE = ("serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data")


def test_brokers_of_one_host_keep_one_replica_and_the_first_port_serves_all(
    tmp_path: Path,
) -> None:
    with running(*SERVE, str(tmp_path), "--processes", "2") as parent:
        first, _ = parent.serves().split(",")
        parent.says("^All brokers are on one host: ")
        parent.says(r"one replica \(--replicas\)")
        use_internal_topics(first)
        admin = AdminClient({"bootstrap.servers": first})
        assert [replicas(admin, topic) for topic in ("used", *INTERNAL)] == [1, 1, 1]
        admin.create_topics([NewTopic("asked", 2, 2)])["asked"].result(DEADLINE)
        assert replicas(admin, "asked") == 2
        spread = NewTopic("spread", 2)
        admin.create_topics([spread])["spread"].result(DEADLINE)
        until(lambda: set(leaders(admin, "spread")) == {0, 1})
        for partition in range(2):
            produce(first, "spread", b"%d" % partition, partition)
        parent.process.terminate()
        assert parent.ends() == 0


def test_logs_of_all_brokers_have_the_form_that_was_asked_for(tmp_path: Path) -> None:
    place = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*place, "--processes", "2", "--log-format", "console") as parent:
        parent.serves()
        parent.process.terminate()
        assert parent.ends() == 0
        text = "".join(parent.said)
        started = re.findall(r"Z \[info +\] broker started .* broker=(\d)", text)
        assert sorted(started) == ["0", "1"]


def leaders(admin: AdminClient, topic: str) -> list[int]:
    partitions = admin.list_topics(timeout=DEADLINE).topics[topic].partitions
    return [each.leader for each in partitions.values()]


def test_replicas_of_brokers_on_one_host_can_be_asked_for(tmp_path: Path) -> None:
    settings = (
        *("--processes", "3", "--replicas", "3"),
        *("--set", "transaction.state.log.replication.factor=1"),
    )
    with running(*SERVE, str(tmp_path), *settings) as parent:
        servers = parent.serves()
        use_internal_topics(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        assert [replicas(admin, topic) for topic in ("used", *INTERNAL)] == [3, 3, 1]
        parent.process.terminate()
        assert parent.ends() == 0
    assert not any("one host" in line for line in parent.said)


def test_cluster_up_keeps_three_replicas(tmp_path: Path) -> None:
    with running(*UP, "--data", str(tmp_path)) as parent:
        servers = parent.serves()
        use_internal_topics(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        assert [replicas(admin, topic) for topic in ("used", *INTERNAL)] == [3, 3, 3]
        parent.process.terminate()
        assert parent.ends() == 0
    assert not any("one host" in line for line in parent.said)


def test_the_only_replica_is_served_again_when_its_process_is(tmp_path: Path) -> None:
    with running(*SERVE, str(tmp_path), "--processes", "2") as parent:
        servers = parent.serves()
        admin = AdminClient({"bootstrap.servers": servers})
        produce(servers, "kept", b"1")
        (leader,) = leaders(admin, "kept")
        os.kill(parent.children()[leader], signal.SIGKILL)
        assert parent.says(rf"broker {leader} serves \S+ again")
        produce(servers, "kept", b"2")
        assert consume(servers, "kept", 2) == [b"1", b"2"]
        parent.process.terminate()
        assert parent.ends() == 0


def test_auto_runs_a_broker_for_each_core_and_at_least_those_that_have_data(
    tmp_path: Path,
) -> None:
    cores = len(os.sched_getaffinity(0))
    with running(*SERVE, str(tmp_path), "--processes", "auto") as parent:
        assert len(parent.serves().split(",")) == cores
        parent.process.terminate()
        assert parent.ends() == 0
    (tmp_path / f"broker.{cores + 1}").mkdir()
    with running(*SERVE, str(tmp_path), "--processes", "auto") as parent:
        assert len(parent.serves().split(",")) == cores + 2
        parent.process.terminate()
        assert parent.ends() == 0


def test_fewer_processes_than_brokers_with_data_are_reported(tmp_path: Path) -> None:
    (tmp_path / "broker.2").mkdir()
    with running(*SERVE, str(tmp_path), "--processes", "2") as parent:
        assert parent.says(r"1 more brokers have data here\. .*: --processes 3 runs them too")
        parent.serves()
        parent.process.terminate()
        assert parent.ends() == 0


def test_several_on_zookeeper_are_brokers_of_its_cluster(tmp_path: Path) -> None:
    connect = shared_server().connect + chroot_of("several")
    settings = (
        *("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path), "--processes", "2"),
        *("--set", f"zookeeper.connect={connect}", "--set", "broker.id=7"),
        *("--set", "offsets.topic.replication.factor=2"),
    )
    with running(*settings) as parent:
        servers = parent.serves()
        admin = AdminClient({"bootstrap.servers": servers})
        assert sorted(admin.list_topics(timeout=DEADLINE).brokers) == [7, 8]
        produce(servers, "kept", b"1")
        assert consume(servers, "kept", 1) == [b"1"]
        assert not (tmp_path / "metadata.socket").exists()
        parent.process.terminate()
        assert parent.ends() == 0
