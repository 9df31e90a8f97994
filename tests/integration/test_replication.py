"""Three real brokers: all replicas end byte for byte equal, no matter which leaders changed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.records.batch import iter_headers
from barnabas.testing import Cluster
from tests.support.transactor import Wire, settled

EPOCHS = "leader-epoch-checkpoint"
REPLICATED = (".log", ".txnindex", ".snapshot", EPOCHS)
TOPIC, PARTITIONS = "orders", 2
CONFIGS = {
    "log.segment.bytes": str(1 << 20),
    "replica.fetch.backoff.ms": "200",
    "log.retention.check.interval.ms": "3600000",
}


def replicas(data: Path, partition: int) -> dict[Path, dict[str, bytes]]:
    """Return the contents that have to be equal, by replica and name."""
    found = {}
    for directory in sorted(data.glob(f"**/{TOPIC}-{partition}")):
        files = {
            each.name: each.read_bytes()
            for each in directory.iterdir()
            if each.name.endswith(REPLICATED)
        }
        files[EPOCHS] = written_epochs(files[EPOCHS], log_end(files))
        found[directory] = files
    return found


def log_end(files: dict[str, bytes]) -> int:
    newest = max(name for name in files if name.endswith(".log"))
    end = int(newest.removesuffix(".log"))
    for _, header in iter_headers(files[newest]):
        end = header.next_offset
    return end


def written_epochs(checkpoint: bytes, end: int) -> bytes:
    """Remove epochs without records: brokers that stop cause elections of leaders that write
    nothing."""
    entries = [line.split() for line in checkpoint.splitlines()[2:]]
    return b" ".join(b":".join(entry) for entry in entries if int(entry[1]) < end)


def assert_equal(data: Path) -> None:
    for partition in range(PARTITIONS):
        first, *others = replicas(data, partition).items()
        assert len(others) == 2
        assert any(name.endswith(".txnindex") for name in first[1])
        for directory, files in others:
            assert sorted(files) == sorted(first[1]), (directory, first[0])
            differ = [name for name in files if files[name] != first[1][name]]
            assert differ == [], (directory, first[0])


class Clients:
    """A plain producer and a transactional one, with the records that they wrote."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._rng = random.Random(seed)
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(servers)
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(20)
        self._plain = Producer(servers | {"acks": "all", "linger.ms": 2, "batch.size": 16384})
        self._transactional = Producer(servers | {"transactional.id": "t"})
        self._transactional.init_transactions(20)
        self.failed = 0
        self._servers = servers

    def write(self, count: int) -> None:
        for _ in range(count):
            self._send(self._plain)
            self._plain.poll(0)
        assert self._plain.flush(30) == 0

    def transact(self, count: int) -> None:
        for _ in range(count):
            self._transactional.begin_transaction()
            for _ in range(self._rng.randrange(1, 5)):
                self._send(self._transactional)
            if self._rng.random() < 0.3:
                # Records that are in no log yet would not be sent any more.
                self._transactional.flush(20)
                self._transactional.abort_transaction(20)
            else:
                self._transactional.commit_transaction(20)

    def _send(self, producer: Producer) -> None:
        value = self._rng.randbytes(self._rng.randrange(100, 2000))
        told = self._delivered if producer is self._plain else None
        producer.produce(TOPIC, value, partition=self._rng.randrange(PARTITIONS), on_delivery=told)

    def _delivered(self, error: object, _: object) -> None:
        self.failed += error is not None

    def delete_records(self, partition: int, share: float) -> None:
        # New clients: librdkafka's admin client remembers the old leader.
        consumer, admin = (
            Consumer(self._servers | {"group.id": "bounds"}),
            AdminClient(self._servers),
        )
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)
        consumer.close()
        to = TopicPartition(TOPIC, partition, low + int((high - low) * share))
        for future in admin.delete_records([to]).values():
            future.result(20)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(data: Path) -> Iterator[Cluster]:
    with Cluster(CONFIGS, data_dir=data) as cluster:
        yield cluster


def test_replicas_are_byte_equal_after_transactions_rolls_and_leader_moves(
    cluster: Cluster, data: Path
) -> None:
    clients = Clients(cluster, seed=1)
    for leader in (2, 3, 1, 2):
        clients.write(600)
        clients.transact(15)
        for partition in range(PARTITIONS):
            cluster.move_leader(TOPIC, partition, leader)
        clients.write(100)
        clients.delete_records(leader % PARTITIONS, 0.3)
    clients.write(300)
    clients.transact(5)
    assert clients.failed == 0
    # The last commit is answered before its markers are written.
    with Wire(cluster.address_of(2)) as wire:
        settled(wire, *((TOPIC, partition) for partition in range(PARTITIONS)))
    cluster.wait_until_in_sync()
    cluster.stop()
    assert_equal(data)


def test_replicas_are_equal_after_each_broker_was_killed(data: Path) -> None:
    with Cluster(CONFIGS, data_dir=data, processes=True) as cluster:
        clients = Clients(cluster, seed=2)
        for broker in (1, 2, 3):
            clients.write(300)
            clients.transact(5)
            cluster.kill(broker)
            clients.write(300)
            cluster.start_broker(broker)
            cluster.wait_until_in_sync(60)
        clients.write(100)
        assert clients.failed == 0
        cluster.wait_until_in_sync()
    for partition in range(PARTITIONS):
        one, *others = replicas(data, partition).values()
        for other in others:
            # A broker takes additional snapshots when it is stopped.
            assert lasting(one) == lasting(other)
            assert [name for name in one.keys() & other.keys() if one[name] != other[name]] == []


def lasting(files: dict[str, bytes]) -> list[str]:
    return sorted(name for name in files if not name.endswith(".snapshot"))
