"""The console of Apache Kafka, in ZooKeeper mode too: every page, and what Kafka does not tell."""

import asyncio
import re
import uuid
from collections.abc import Iterator

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.topic_partition import TopicPartition
from tests.referee.brokers import SHARED, Address
from tests.support.command_line import DEADLINE
from tests.support.kafka.zookeeper_node import ZooKeeperKafka
from tests.support.running_console import RunningConsole, confirmation
from tests.support.transactions_by_hand import older_producer
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("referee")


@pytest.fixture(scope="module")
def zookeeper_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    one = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with ZooKeeperKafka(tmp_path_factory.mktemp("kafka"), SHARED | one) as node:
        yield Address("127.0.0.1", node.port)


@pytest.fixture(params=["kafka", "zookeeper_kafka"])
def node(request: pytest.FixtureRequest) -> Address:
    found: Address = request.getfixturevalue(request.param)
    return found


def test_every_page_is_there_with_apache_kafka(node: Address) -> None:
    servers, topic = f"{node.host}:{node.port}", f"t-{uuid.uuid4().hex[:8]}"
    group, id = f"g-{topic}", f"x-{topic}"

    async def fill() -> None:
        async with Cluster(servers) as cluster:
            await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
            await GroupAdmin(cluster).set_offsets(group, {TopicPartition(topic, 0): 0})

    asyncio.run(fill())
    producer = older_producer(servers, id)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(DEADLINE)
    with RunningConsole(servers, allow_changes=True) as console:

        def words(path: str, text: str, **parameters: object) -> str:
            return until(
                lambda: found if text in (found := console.get(path, **parameters).words) else "",
                lambda: console.get(path, **parameters).words,
            )

        assert "Controller broker" in words("/", "Checked")
        assert "Log directories" in words("/brokers", "online")
        assert f"{group} 1" in words("/topics", group, q=topic)
        assert "last stable 0 high watermark 1" in words("/topic", f"{group} at 0", name=topic)
        assert "cleanup.policy" in words("/configs", "delete", kind="topic", name=topic, all="on")
        assert "1 shown" in words(
            "/records", "open", topic=topic, partition=0, isolation="uncommitted"
        )
        assert "1 offset" not in words("/tail", "open", topic=topic, isolation="uncommitted")
        assert "to below 0: 0 aborted" in words("/topic", "marker", name=topic, end="on")
        assert words("/security", "everyone may do everything")
        assert "User Client id Ip Quota" in words("/security", "Quota", show="quotas")
        assert "User Mechanism Iterations" in words("/security", "Mechanism", show="users")
        assert words("/security/why", "Explain")
        assert "consumer" in words("/groups", group, q=group)
        assert f"{topic}-0 0 1 1 0 1 {id}" in words("/group", id, id=group)
        assert f"{topic}-0 0 1 {id}" in words("/transactions", f"{topic}-0", q=id)
        assert re.search(rf"{topic}-0 0 1 1 .*{group}", words("/transaction", group, id=id))
        assert "The coordinator keeps no events" in words("/transaction", "Timeline", id=id)
        assert "Events of broker 1 are missing: no HTTP endpoint" in words("/timeline", "0 events")
        assert "No partition is being reassigned" in words("/reassignments", "Reassignments")
        assert "will be fenced" in words("/transaction/fence", "dry run", id=id)
        assert "Offset after" in words("/group/reset", "dry run", id=group, way="to_latest")
        assert "0 sinks" in words("/pipelines", "sinks")
        assert "Rates need the counters of every broker" in words("/", "Health")
        # By the end offsets of two samples.
        rate = rf"{topic} 1 1 in sync \S+ [\d.]+ /s"
        until(lambda: re.search(rate, console.get("/topics", q=topic).words))
        decoded = words("/records", "kind", topic="__transaction_state", isolation="uncommitted")
        assert '"kind": "transaction"' in decoded
    producer.abort_transaction(DEADLINE)


@pytest.mark.xdist_group("referee")
def test_topics_and_groups_of_apache_kafka_are_changed(node: Address) -> None:
    servers, topic = f"{node.host}:{node.port}", f"t-{uuid.uuid4().hex[:8]}"
    new: dict[str, object] = {"name": topic}
    group = f"g-{topic}"
    with RunningConsole(servers, allow_changes=True) as console:

        def changed(path: str, **parameters: object) -> str:
            address, fields = confirmation(console.get(path, **parameters))
            done = console.post(address, **fields)
            assert done.status == 200, done.words
            return done.words

        assert f"{topic} was created with 2 partition(s)" in changed(
            "/topic/create", **new, partitions=2, configs="retention.ms=1d"
        )
        assert "was changed" in changed("/topic/config", **new, key="retention.ms", value="2d")
        assert "172800000" in console.get("/configs", kind="topic", **new).words
        assert "has 3 partitions" in changed("/topic/partitions", **new, count=3)
        assert "at offset 0" in changed("/topic/produce", **new, what="text", value="one more")

        async def commit() -> None:
            async with Cluster(servers) as cluster:
                await GroupAdmin(cluster).set_offsets(group, {TopicPartition(topic, 0): 0})

        asyncio.run(commit())
        assert f"Group {group} was deleted" in changed("/group/delete", id=group)
        assert "was deleted" in changed("/topic/delete", **new)
