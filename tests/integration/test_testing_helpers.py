"""The helpers of `Broker` and `Cluster`, beside the clients of applications."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaConsumer

from barnabas.client.cluster import Cluster as Client
from barnabas.protocol.messages import metadata
from barnabas.testing import Broker, Cluster, allow
from tests.integration.one_request import in_thread

DEADLINE = 20.0


@pytest.fixture(scope="module", params=["broker", "cluster", "processes"])
def brokers(request: pytest.FixtureRequest) -> Iterator[Broker | Cluster]:
    made: Broker | Cluster = (
        Broker()
        if request.param == "broker"
        else Cluster(brokers=2, processes=request.param == "processes")
    )
    with made:
        yield made


def group_of(brokers: Broker | Cluster, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": brokers.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def test_topic_has_the_settings_that_it_was_created_with(brokers: Broker | Cluster) -> None:
    name = brokers.fresh_name("orders")
    assert name.startswith("orders-")
    assert name != brokers.fresh_name("orders")
    configs = {"retention.ms": 60_000, "preallocate": True, "cleanup.policy": "compact"}
    assert brokers.create_topic(name, partitions=3, configs=configs) == name
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    assert len(admin.list_topics(name, DEADLINE).topics[name].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(DEADLINE)
    assert {key: found[key].value for key in configs} == {
        "retention.ms": "60000",
        "preallocate": "true",
        "cleanup.policy": "compact",
    }


async def test_created_topic_is_known_to_every_broker() -> None:
    async with Cluster() as cluster, Client(cluster.bootstrap_servers) as client:
        controller = await cluster.controller
        late = next(each for each in cluster.broker_ids if each != controller)
        await client.refresh(())
        # CreateTopics waits for the leaders: one of two topics has another leader.
        for _ in range(2):
            with cluster.delay("UpdateMetadata", 0.5, broker=late):
                name = await cluster.create_topic()
                request = metadata.MetadataRequest(
                    topics=[metadata.MetadataRequestTopic(name=name)],
                    allow_auto_topic_creation=False,
                )
                (topic,) = (await client.ask(metadata.API, request, node=late)).topics
            assert topic.error_code == 0
            assert topic.partitions[0].leader_id in cluster.broker_ids


def test_clients_read_what_the_helper_produces(brokers: Broker | Cluster) -> None:
    topic = brokers.create_topic()
    headers = [("trace", b"7"), ("none", None)]
    sent = brokers.produce(topic, b"1", "zwei ä 2", None, key="k", headers=headers)
    assert [(each.topic, each.partition, each.offset) for each in sent] == [
        (topic, 0, offset) for offset in range(3)
    ]
    with closing(
        KafkaConsumer(
            topic,
            bootstrap_servers=brokers.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(DEADLINE * 1000),
        )
    ) as consumer:
        found = [next(consumer) for _ in range(3)]
    assert [each.value for each in found] == [b"1", "zwei ä 2".encode(), None]
    assert {each.key for each in found} == {b"k"}
    assert list(found[0].headers) == headers


def test_value_is_sent_as_json(brokers: Broker | Cluster) -> None:
    topic = brokers.create_topic()
    for value in ({"a": [1, "ä"]}, [], None):
        brokers.produce(topic, json=value, headers=[("kind", "json")])
    found = brokers.records(topic, 3)
    assert [each.value for each in found] == ['{"a": [1, "ä"]}'.encode(), b"[]", b"null"]
    assert found[0].headers == (("kind", b"json"),)


WRONG: dict[str, Callable[[Broker | Cluster], object]] = {
    "a value is bytes, text or None, not dict; json= sends": lambda b: b.produce("t", {"a": 1}),  # type: ignore[arg-type]
    "a value is bytes, text or None, not list": lambda b: b.produce("t", b"1", ["2"]),  # type: ignore[arg-type]
    "a key is bytes, text or None, not int": lambda b: b.produce("t", b"1", key=7),  # type: ignore[arg-type]
    "headers are pairs such as": lambda b: b.produce("t", b"1", headers={"trace": b"7"}),  # type: ignore[arg-type]
    "a value of the header n is bytes": lambda b: b.produce("t", b"1", headers=[("n", 7)]),  # type: ignore[list-item]
    "give no other one": lambda b: b.produce("t", b"1", json={}),
    "not JSON serializable": lambda b: b.produce("t", json={1, 2}),
    "not JSON compliant": lambda b: b.produce("t", json=float("nan")),
    "the name of a topic is a text, not 7": lambda b: b.create_topic(7),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_value_is_refused_with_what_is_taken(brokers: Broker | Cluster, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        WRONG[message](brokers)


def test_records_are_those_of_clients_by_partition_and_offset(brokers: Broker | Cluster) -> None:
    topic = brokers.create_topic(partitions=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for number in range(9):
        producer.produce(topic, b"%d" % number, key=b"k", partition=number % 3)
    assert producer.flush(DEADLINE) == 0
    found = brokers.records(topic)
    assert [(each.partition, each.value) for each in found] == [
        (partition, b"%d" % (partition + 3 * row)) for partition in range(3) for row in range(3)
    ]
    assert [each.offset for each in found] == [0, 1, 2] * 3
    assert {(each.topic, each.key) for each in found} == {(topic, b"k")}
    assert brokers.records(topic, partition=1) == found[3:6]
    assert brokers.records(brokers.create_topic()) == []


def test_records_waits_for_as_many_as_it_is_asked_for(brokers: Broker | Cluster) -> None:
    topic = brokers.create_topic()
    waiting = in_thread(lambda: brokers.records(topic, 2, timeout=DEADLINE))
    brokers.produce(topic, b"1")
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    brokers.produce(topic, b"2")
    assert [each.value for each in waiting.result(DEADLINE)] == [b"1", b"2"]
    with pytest.raises(TimeoutError, match=rf"{topic} has 2 records, not 3 within 0\.3 s"):
        brokers.records(topic, 3, timeout=0.3)


def test_records_of_open_and_aborted_transactions_are_left_out(brokers: Broker | Cluster) -> None:
    topic = brokers.create_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": brokers.fresh_name()}
    )
    producer.init_transactions(DEADLINE)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
        (b"open", None),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(DEADLINE) == 0
        if end is not None:
            end(DEADLINE)
    assert [each.value for each in brokers.records(topic)] == [b"committed"]
    everything = brokers.records(topic, read_committed=False)
    assert [each.value for each in everything] == [b"aborted", b"committed", b"open"]
    producer.abort_transaction(DEADLINE)


def test_lag_is_the_end_less_the_committed_offset(brokers: Broker | Cluster) -> None:
    topic, other = brokers.create_topic(partitions=2), brokers.create_topic()
    group = brokers.fresh_name("group")
    brokers.produce(topic, *"abcde", partition=0)
    brokers.produce(topic, "x", "y", partition=1)
    brokers.produce(other, "z")
    with closing(confluent_kafka.Consumer(group_of(brokers, group))) as consumer:
        read = [confluent_kafka.TopicPartition(topic, 0, 2)]
        consumer.commit(offsets=read, asynchronous=False)
        # Nothing of partition 1 is committed: all of it is still to be read.
        assert brokers.lag(group) == 3 + 2
        assert brokers.lag(group, other) == 1
        read.append(confluent_kafka.TopicPartition(topic, 1, 2))
        read.append(confluent_kafka.TopicPartition(other, 0, 1))
        consumer.commit(offsets=read, asynchronous=False)
        assert (brokers.lag(group), brokers.lag(group, topic)) == (3, 3)
        assert brokers.lag(group, other) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_lag_counts_topics_that_members_read_before_the_first_commit(
    brokers: Broker | Cluster, protocol: str
) -> None:
    topic, group = brokers.create_topic(), brokers.fresh_name("group")
    brokers.produce(topic, "a", "b")
    config = group_of(brokers, group) | {"group.protocol": protocol}
    with closing(confluent_kafka.Consumer(config)) as consumer:
        consumer.subscribe([topic])
        joining = in_thread(lambda: consumer.poll(DEADLINE))
        brokers.wait_for_group(group)
        assert joining.result(DEADLINE).value() == b"a"
        assert brokers.lag(group) == 2
    brokers.wait_for_group(group, members=0)


def test_to_read_counts_no_markers_and_no_aborted_records(brokers: Broker | Cluster) -> None:
    topic, group = brokers.create_topic(), brokers.fresh_name("group")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": group}
    )
    producer.init_transactions(DEADLINE)
    for value, ends in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(DEADLINE)
        (producer.commit_transaction if ends else producer.abort_transaction)(DEADLINE)
    with closing(confluent_kafka.Consumer(group_of(brokers, group))) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
        assert len(brokers.records(topic, 2)) == 2
        assert (brokers.lag(group), brokers.to_read(group), brokers.to_read(group, topic)) == (
            5,
            1,
            1,
        )


async def test_wait_for_group_follows_members_and_commits(brokers: Broker | Cluster) -> None:
    aio, group = brokers.aio, brokers.fresh_name("group")
    topic = await aio.create_topic(partitions=2)
    await aio.produce(topic, "a", "b", partition=0)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=brokers.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async with member() as first:
        await aio.wait_for_group(group, members=1)
        async with member() as second:
            await aio.wait_for_group(group, members=2)
            with pytest.raises(TimeoutError, match="is Stable with 2 members within"):
                await aio.wait_for_group(group, members=1, timeout=0.3)
            assert first.assignment() | second.assignment() == {(topic, 0), (topic, 1)}
        await aio.wait_for_group(group, members=1)
        waiting = asyncio.create_task(aio.wait_for_group(group, members=1, lag=0))
        await first.getone()
        await first.commit()
        text = rf"group {group} is Stable with 1 members and has lag 1 within 0\.3 s"
        with pytest.raises(TimeoutError, match=text):
            await aio.wait_for_group(group, lag=0, timeout=0.3)
        await aio.wait_for_group(group, lag=1)
        assert not waiting.done()
        await first.getone()
        await first.commit()
        await waiting
    await aio.wait_for_group(group, members=0)
    await aio.wait_for_group(group, members=0, lag=0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b: b.produce("none", b"1"), "there is no topic none"),
        (lambda b: b.records("none"), "there is no topic none"),
        (lambda b: b.lag("none"), "there is no group none"),
        (lambda b: b.to_read("none"), "there is no group none"),
        (lambda b: b.lag(committed(b), "none"), "there is no topic none"),
        (
            lambda b: b.produce(b.create_topic(), b"1", partition=1),
            "there is no partition test-.*-1",
        ),
        (lambda b: b.records(b.create_topic(), partition=1), "there is no partition test-.*-1"),
        (lambda b: b.create_topic(b.create_topic()), "topic test-.* TOPIC_ALREADY_EXISTS"),
        (lambda b: b.create_topic("a/b"), "topic a/b: INVALID_TOPIC_EXCEPTION"),
        (lambda b: b.create_topic(partitions=0), "INVALID_PARTITIONS"),
        (lambda b: b.create_topic(replication_factor=9), "INVALID_REPLICATION_FACTOR"),
        (lambda b: b.create_topic(configs={"retention.sm": 1}), "INVALID_CONFIG.*retention.sm"),
    ],
)
def test_helpers_name_what_does_not_exist(
    brokers: Broker | Cluster, call: Callable[[Broker | Cluster], object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        call(brokers)


def committed(brokers: Broker | Cluster) -> str:
    """Return the name of a group that has committed an offset."""
    group, topic = brokers.fresh_name("group"), brokers.create_topic()
    with closing(confluent_kafka.Consumer(group_of(brokers, group))) as consumer:
        where = confluent_kafka.TopicPartition(topic, 0, 0)
        consumer.commit(offsets=[where], asynchronous=False)
    return group


@pytest.mark.parametrize("paused", [1, 2])
def test_helpers_work_beside_a_broker_that_is_paused(paused: int) -> None:
    with Cluster({"metadata.session.timeout.ms": 2000}, processes=True) as cluster:
        topic = cluster.create_topic()
        cluster.move_leader(topic, 0, 3)
        cluster.pause(paused)
        # Acknowledged once the session of the paused broker is over.
        cluster.produce(topic, b"1")
        assert [each.value for each in cluster.records(topic)] == [b"1"]
        began = time.monotonic()
        with pytest.raises(ValueError, match="there is no topic none"):
            cluster.records("none")
        assert time.monotonic() - began < DEADLINE / 2
        cluster.resume(paused)
        # A broker that is stopped before it has a session again takes 15 s.
        cluster.wait_until_in_sync()


def test_helpers_work_beside_a_broker_that_was_killed() -> None:
    with Cluster(processes=True) as cluster:
        topic = cluster.create_topic()
        cluster.kill(cluster.leader_of(topic))
        cluster.produce(topic, b"1")
        assert [each.value for each in cluster.records(topic)] == [b"1"]


@pytest.mark.parametrize("make", [Broker, Cluster])
def test_helpers_and_levers_work_with_users(make: Callable[..., Any]) -> None:
    with make(users=["alice"], rules=[allow("alice", "Read", "Topic:*")]) as brokers:
        topic = brokers.create_topic()
        brokers.produce(topic, b"1")
        assert [each.value for each in brokers.records(topic)] == [b"1"]
        if isinstance(brokers, Cluster):
            # These two opened a connection without TLS.
            other = next(each for each in (1, 2, 3) if each != brokers.leader_of(topic))
            brokers.move_leader(topic, 0, other)
            brokers.move_coordinator(other, group="g")
            assert brokers.leader_of(topic) == brokers.coordinator_of(group="g") == other
