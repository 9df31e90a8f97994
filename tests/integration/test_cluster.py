"""Three brokers replicate, and keep serving while one of them is stopped, killed or cut off."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import Cluster
from barnabas.testing.plugin import barnabas_cluster
from tests.support.waiting import until

DEADLINE = 30.0
SHORT_SESSION = {"metadata.session.timeout.ms": "1000"}

__all__ = ["barnabas_cluster"]


@pytest.fixture(scope="module")
def processes() -> Iterator[Cluster]:
    """Brokers that can be killed and paused. Each test leaves all three of them running."""
    with Cluster(SHORT_SESSION, processes=True) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(DEADLINE)
    for partition in range(partitions):
        cluster.leader_of(topic, partition)
    return topic


class Sender:
    """A producer with acks=all, which keeps the records that were acknowledged."""

    def __init__(self, cluster: Cluster, **settings: object) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
                **settings,
            }
        )

    def send(self, topic: str, *values: bytes, partition: int = 0) -> "Sender":
        """Send, and wait for the results."""
        self.begin(topic, *values, partition=partition)
        assert self._producer.flush(DEADLINE) == 0
        return self

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> "Sender":
        """Send without waiting."""
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)
        return self

    def wait(self, timeout: float) -> int:
        """Wait for the results; return how many are outstanding after `timeout` seconds."""
        return self._producer.flush(timeout)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self.errors.append(error)


def read(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[bytes]:
    """Return the first committed values of a partition; fewer if no more arrive."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE
    while len(values) < count and time.monotonic() < deadline:
        values += [each.value() for each in consumer.consume(count, 0.2) if each.error() is None]
    consumer.close()
    return values


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_acknowledged_records_are_on_three_brokers(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "replicated", partitions=3)
    sender = Sender(cluster)
    for partition in range(3):
        sender.send(topic, *numbered(0, 100), partition=partition)
    assert sender.errors == []
    assert {cluster.leader_of(topic, partition) for partition in range(3)} == {1, 2, 3}
    for partition in range(3):
        assert sorted(cluster.in_sync_of(topic, partition)) == [1, 2, 3]
        assert read(cluster, topic, 100, partition) == numbered(0, 100)


def test_group_continues_at_its_offsets_with_another_coordinator(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "consumed")
    Sender(cluster).send(topic, *numbered(0, 10))
    with member(cluster, topic) as consumer:
        assert take(consumer, 6) == numbered(0, 6)
        consumer.commit(asynchronous=False)
    before = cluster.coordinator_of(group="group")
    other = next(broker for broker in cluster.running if broker != before)
    cluster.move_coordinator(other, group="group")
    assert cluster.coordinator_of(group="group") == other
    with member(cluster, topic) as consumer:
        assert take(consumer, 4) == numbered(6, 10)


@contextmanager
def member(cluster: Cluster, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def take(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE
    while len(values) < count and time.monotonic() < deadline:
        values += [
            each.value() for each in consumer.consume(count - len(values), 0.2) if not each.error()
        ]
    return values


class Transactions:
    """A transactional producer."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(DEADLINE)

    def commit(self, topic: str, *values: bytes) -> None:
        self.begin(topic, *values)
        self.producer.commit_transaction(DEADLINE)

    def abort(self, topic: str, *values: bytes) -> None:
        self.begin(topic, *values)
        self.producer.abort_transaction(DEADLINE)

    def begin(self, topic: str, *values: bytes) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(topic, value, partition=0)
        assert self.producer.flush(DEADLINE) == 0


def test_transactions_end_after_their_coordinator_has_moved(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "transactional")
    transactions = Transactions(cluster, "id")
    transactions.commit(topic, b"1", b"2")
    transactions.abort(topic, b"aborted")
    before = cluster.coordinator_of(transactional_id="id")
    transactions.begin(topic, b"3")
    other = next(broker for broker in cluster.running if broker != before)
    cluster.move_coordinator(other, transactional_id="id")
    transactions.producer.commit_transaction(DEADLINE)
    transactions.commit(topic, b"4")
    assert read(cluster, topic, 4) == numbered(1, 5)


def test_transaction_past_its_timeout_is_aborted_without_its_producer(
    barnabas_cluster: Cluster,
) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "forgotten")
    transactions = Transactions(cluster, "forgotten")
    transactions.begin(topic, b"never")
    Sender(cluster).send(topic, b"after")
    cluster.jump_transaction_clock(120)
    assert read(cluster, topic, 1) == [b"after"]


def test_leaderships_move_and_no_client_sees_more_than_a_retry(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "moving")
    sender = Sender(cluster).send(topic, *numbered(0, 10))
    for broker in (1, 2, 3):
        cluster.move_leader(topic, 0, to=broker)
        assert cluster.leader_of(topic) == broker
        sender.send(topic, *numbered(10 * broker, 10 * broker + 10))
    assert sender.errors == []
    assert read(cluster, topic, 40) == numbered(0, 40)


def test_brokers_are_stopped_and_started_one_after_another(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "rolling")
    sender, sent = Sender(cluster), 0
    for broker in cluster.broker_ids:
        cluster.stop_broker(broker)
        assert cluster.leader_of(topic) != broker
        sender.send(topic, *numbered(sent, sent + 10))
        cluster.start_broker(broker)
        cluster.wait_until_in_sync()
        sender.send(topic, *numbered(sent + 10, sent + 20))
        sent += 20
    assert sender.errors == []
    assert read(cluster, topic, sent) == numbered(0, sent)


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_replaced() -> None:
    with Cluster(SHORT_SESSION) as cluster:
        topic = create(cluster, "cut")
        Sender(cluster).send(topic, *numbered(0, 10))
        old = cluster.leader_of(topic)
        others = [broker for broker in cluster.running if broker != old]
        cluster.partition([old], others)
        cluster.cut_store(old)
        stranded = Sender(cluster, **{"bootstrap.servers": cluster.address_of(old)})
        stranded.begin(topic, b"stranded")
        until(lambda: cluster.leader_of(topic) != old)
        rest = Sender(cluster, **{"bootstrap.servers": cluster.address_of(others[0])})
        rest.send(topic, *numbered(10, 20))
        assert (rest.errors, stranded.acknowledged) == ([], [])
        cluster.heal()
        assert stranded.wait(DEADLINE) == 0
        cluster.wait_until_in_sync()
        # Its first attempt was truncated with the old leader's log end; the new leader got the
        # second.
        values = read(cluster, topic, 21)
        assert values[:20] == numbered(0, 20)
        assert values[20:] == stranded.acknowledged == [b"stranded"]


def test_requests_between_brokers_can_be_held(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "held")
    leader = cluster.leader_of(topic)
    helds = [
        cluster.hold("Fetch", client_id=f"broker-{broker}", broker=leader)
        for broker in cluster.running
        if broker != leader
    ]
    for held in helds:
        held.wait()
    sender = Sender(cluster).begin(topic, b"1")
    assert sender.wait(0.3) == 1
    for held in helds:
        held.release()
    assert sender.wait(DEADLINE) == 0
    assert sender.acknowledged == [b"1"]


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(processes: Cluster) -> None:
    cluster = processes
    topic = create(cluster, "killed")
    sender = Sender(cluster).send(topic, *numbered(0, 100))
    leader = cluster.leader_of(topic)
    sender.begin(topic, *numbered(100, 200))
    cluster.kill(leader)
    sender.send(topic, *numbered(200, 300))
    assert cluster.leader_of(topic) != leader
    assert sender.errors == []
    assert read(cluster, topic, 300) == numbered(0, 300)
    cluster.start_broker(leader)
    cluster.wait_until_in_sync()


def test_transaction_survives_a_crash_of_its_coordinator(processes: Cluster) -> None:
    cluster = processes
    topic = create(cluster, "coordinated")
    transactions = Transactions(cluster, "survives")
    transactions.commit(topic, b"1")
    transactions.begin(topic, b"2")
    coordinator = cluster.coordinator_of(transactional_id="survives")
    cluster.kill(coordinator)
    transactions.producer.commit_transaction(DEADLINE)
    transactions.abort(topic, b"aborted")
    transactions.commit(topic, b"3")
    assert read(cluster, topic, 3) == numbered(1, 4)
    cluster.start_broker(coordinator)
    cluster.wait_until_in_sync()


def test_leader_paused_past_its_session_returns_as_a_follower(processes: Cluster) -> None:
    cluster = processes
    topic = create(cluster, "paused")
    # A paused broker does not answer, and the client notices by its own timeout.
    sender = Sender(cluster, **{"socket.timeout.ms": 1500}).send(topic, *numbered(0, 10))
    leader = cluster.leader_of(topic)
    cluster.pause(leader)
    until(lambda: cluster.leader_of(topic) != leader)
    sender.send(topic, *numbered(10, 20))
    cluster.resume(leader)
    cluster.wait_until_in_sync()
    sender.send(topic, *numbered(20, 30))
    assert sender.errors == []
    assert read(cluster, topic, 30) == numbered(0, 30)


def test_broker_registers_again_after_its_session_expires(barnabas_cluster: Cluster) -> None:
    cluster = barnabas_cluster
    topic = create(cluster, "expired")
    controller = cluster.controller
    cluster.expire_session(controller)
    cluster.wait_until_in_sync()
    sender = Sender(cluster).send(topic, *numbered(0, 10))
    assert sender.errors == []
    assert read(cluster, topic, 10) == numbered(0, 10)


def test_cluster_is_ready_within_a_second_and_a_half() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        with Cluster():
            return time.perf_counter() - began

    assert min(seconds() for _ in range(2)) < 1.5


def test_cluster_keeps_its_data_in_a_given_directory(tmp_path: Path) -> None:
    for run in range(2):
        with Cluster(data_dir=tmp_path) as cluster:
            if run == 0:
                create(cluster, "kept")
            Sender(cluster).send("kept", b"%d" % run)
            assert read(cluster, "kept", run + 1) == numbered(0, run + 1)
