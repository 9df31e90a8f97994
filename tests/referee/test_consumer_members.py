"""Members of our client in the consumer protocol (KIP-848), beside Apache Kafka and beside us."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.producer import Producer
from barnabas.operations.group_description import describe_all, describe_group
from barnabas.operations.group_resets import plan_reset
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import consumer_group_heartbeat
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from barnabas.testing.topics import lag, wait_for_group
from tests.support.checker import committed, run_until
from tests.support.group_members import PollingMember, shared
from tests.support.kafka.node import Kafka
from tests.support.topic_names import topic_name
from tests.support.waiting import eventually

PARTITIONS = 6
QUICK = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.regex.refresh.interval.ms": "10000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
}


@pytest.fixture(scope="module", params=["kafka", "barnabas"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "barnabas":
        with Broker(QUICK) as broker:
            yield broker.bootstrap_servers
        return
    with Kafka(tmp_path_factory.mktemp("kafka"), properties=QUICK) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster:
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    await Admin(cluster).create_topic(name, partitions=PARTITIONS)
    return name


async def _produce(cluster: Cluster, topic: str, numbers: range) -> None:
    async with Producer(cluster) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def test_members_share_partitions_and_read_each_record_once(
    servers: str, cluster: Cluster, topic: str
) -> None:
    one = PollingMember(servers, topic, [topic])
    await eventually(lambda: shared(one, count=PARTITIONS))
    await _produce(cluster, topic, range(60))
    await eventually(lambda: len(one.seen) == 60)
    two = PollingMember(servers, topic, [topic])
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    assert (len(one.revoked), one.lost) == (3, [])
    three = PollingMember(servers, topic, [topic])
    await eventually(lambda: shared(one, two, three, count=PARTITIONS))
    await _produce(cluster, topic, range(60, 120))
    await eventually(lambda: len(one.seen | two.seen | three.seen) == 120)
    await two.leave()
    await eventually(lambda: shared(one, three, count=PARTITIONS))
    await three.leave()
    await eventually(lambda: shared(one, count=PARTITIONS))
    await _produce(cluster, topic, range(120, 180))
    await eventually(lambda: len(one.seen | two.seen | three.seen) == 180)
    await one.leave()
    assert set((one.seen + two.seen + three.seen).values()) == {1}
    committed = await GroupAdmin(cluster).offsets(topic)
    assert committed == {(topic, partition): 30 for partition in range(PARTITIONS)}


async def test_member_that_died_is_replaced_after_its_session(servers: str, topic: str) -> None:
    one, two = (PollingMember(servers, topic, [topic]) for _ in range(2))
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    await two.die()
    await eventually(lambda: shared(one, count=PARTITIONS))
    assert one.lost == []
    await one.leave()


async def test_member_that_was_removed_loses_its_partitions_and_comes_back(
    servers: str, cluster: Cluster, topic: str
) -> None:
    one, two = (PollingMember(servers, topic, [topic]) for _ in range(2))
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    await _produce(cluster, topic, range(60))
    await eventually(lambda: len(one.seen | two.seen) == 60)
    request = ConsumerGroupHeartbeatRequest(
        group_id=topic, member_id=two.member.metadata.member_id, member_epoch=-1
    )
    answer = await cluster.ask_coordinator(consumer_group_heartbeat.API, request, topic)
    assert answer.error_code == 0
    await eventually(lambda: len(two.lost) == 3 and shared(one, two, count=PARTITIONS))
    await _produce(cluster, topic, range(60, 120))
    await eventually(lambda: len(one.seen | two.seen) == 120)
    for member in (one, two):
        await member.leave()


async def test_static_member_keeps_its_partitions_while_it_is_away(
    servers: str, topic: str
) -> None:
    one = PollingMember(servers, topic, [topic], instance_id="one")
    two = PollingMember(servers, topic, [topic], instance_id="two")
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    # The first of the two had all partitions for a moment.
    kept, revoked = one.partitions, [*two.revoked]
    began = time.monotonic()
    await one.leave()
    again = PollingMember(servers, topic, [topic], instance_id="one")
    await eventually(lambda: again.partitions == kept)
    assert time.monotonic() - began < 2
    assert two.revoked == revoked
    twin = PollingMember(servers, topic, [topic], instance_id="two")
    error = await twin.error()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNRELEASED_INSTANCE_ID
    await twin.die()
    for member in (again, two):
        await member.leave()


async def test_expression_follows_topics_that_are_created(
    servers: str, cluster: Cluster, topic: str
) -> None:
    one = PollingMember(servers, topic, expression=f"{topic}(-more)?")
    await eventually(lambda: shared(one, count=PARTITIONS))
    await Admin(cluster).create_topic(f"{topic}-more", partitions=2)
    await Admin(cluster).create_topic(f"{topic}-other", partitions=2)
    await eventually(lambda: shared(one, count=PARTITIONS + 2))
    assert TopicPartition(f"{topic}-more", 1) in one.partitions
    await one.leave()


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"expression": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION, "missing closing )"),
        ({"assignors": ["unheard-of"]}, ErrorCode.UNSUPPORTED_ASSIGNOR, "unheard-of"),
    ],
    ids=["expression", "assignor"],
)
async def test_wrong_subscription_ends_with_the_text_of_the_coordinator(
    servers: str, topic: str, options: dict[str, object], code: ErrorCode, text: str
) -> None:
    one = PollingMember(servers, topic, [topic], **options)
    error = await one.error()
    assert isinstance(error, KafkaError)
    assert error.code is code
    assert error.message is not None
    assert text in error.message
    await one.die()


async def test_range_gives_each_member_a_range(servers: str, topic: str) -> None:
    one, two = (PollingMember(servers, topic, [topic], assignors=["range"]) for _ in range(2))
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    ranges = sorted(sorted(p for _, p in each.partitions) for each in (one, two))
    assert ranges == [[0, 1, 2], [3, 4, 5]]
    for member in (one, two):
        await member.leave()


async def test_description_has_epochs_targets_and_expressions(
    servers: str, cluster: Cluster, topic: str
) -> None:
    one = PollingMember(servers, topic, [topic])
    two = PollingMember(servers, topic, expression=f"{topic}.*", instance_id="two")
    await eventually(lambda: shared(one, two, count=PARTITIONS))
    (listed,) = [each for each in await GroupAdmin(cluster).groups() if each.group_id == topic]
    assert (listed.group_state, listed.group_type) == ("Stable", "consumer")
    found = await describe_group(cluster, topic)
    assert (found.state, found.type, found.assignor) == ("Stable", "consumer", "uniform")
    assert found.epoch == found.assignment_epoch > 1
    members = {each.member: each for each in found.members}
    named, expressed = members[one.member.metadata.member_id], members["two"]
    for row, member in ((named, one), (expressed, two)):
        assert row.assigned == row.target
        assert row.assigned == sorted(
            f"{each.topic}:{each.partition}" for each in member.partitions
        )
        assert (row.protocol, row.epoch) == ("consumer", found.epoch)
    assert (named.subscribed, named.expression) == ([topic], None)
    assert (expressed.subscribed, expressed.expression) == ([], f"{topic}.*")
    everything, others = await describe_all(cluster)
    assert topic in [each.group for each in everything]
    assert others == []
    for each in (one, two):
        await each.leave()


async def test_offsets_of_a_group_without_members_are_reset_and_it_is_deleted(
    servers: str, cluster: Cluster, topic: str
) -> None:
    admin = GroupAdmin(cluster)
    one = PollingMember(servers, topic, [topic])
    await eventually(lambda: shared(one, count=PARTITIONS))
    await _produce(cluster, topic, range(60))
    await eventually(lambda: len(one.seen) == 60)
    with pytest.raises(KafkaError) as caught:
        await admin.delete(topic)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    await one.leave()
    reset = await plan_reset(cluster, topic, "shift_by", -4, [])
    assert set(reset.after.values()) == {6}
    await admin.set_offsets(topic, reset.after)
    assert await admin.offsets(topic) == reset.after
    again = PollingMember(servers, topic, [topic])
    await eventually(lambda: again.seen.total() == 24)
    await again.leave()
    await admin.delete(topic)
    with pytest.raises(KafkaError) as caught:
        await describe_group(cluster, topic)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_checker_finds_nothing_with_members_that_come_and_go(servers: str, tmp_path: Path) -> None:
    done = run_until(
        lambda events: committed(events) > 20,
        servers,
        tmp_path / "history",
        "-w",
        "consumer-members",
    )
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["checks"]) == (
        0,
        [{**each, "anomalies": []} for each in verdict["checks"]],
    )
    assert verdict["figures"]["committed"] > 20


async def test_helpers_of_tests_wait_for_a_group_and_count_its_lag(
    servers: str, cluster: Cluster, topic: str
) -> None:
    seen: list[str] = []
    one, two = (PollingMember(servers, topic, [topic]) for _ in range(2))
    await wait_for_group(cluster, topic, 2, None, seen)
    assert seen == [f"group {topic} is Stable with 2 members"]
    for member in (one, two):
        await member.pause()
    await _produce(cluster, topic, range(12))
    # Nothing is committed yet: the lag is that of the topic that the members read.
    assert await lag(cluster, topic, None) == 12
    for member in (one, two):
        member.running.set()
    await wait_for_group(cluster, topic, 2, 0, seen)
    for member in (one, two):
        await member.leave()
    await wait_for_group(cluster, topic, 0, None, seen)
    assert seen == [f"group {topic} is Empty with 0 members"]
