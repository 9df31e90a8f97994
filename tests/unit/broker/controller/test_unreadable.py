"""A damaged node deposes no controller, and no broker loses a replica."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tests.unit.broker.controller.harness import (
    FakeBroker,
    FakeCluster,
    FakeReplicas,
    open_cluster,
    until,
)

NODES = {
    "topic": (znodes.topic_path("old"), b'{"version":1,"partitions":{"0":[1,2]}}'),
    "state": (znodes.state_path("old", 0), b"?"),
}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await open_cluster()
    await cluster.start(1)
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def create(broker: FakeBroker, name: str) -> CreatedTopic | KafkaError:
    new = NewTopic(name, assignments=[(0, (1, 2))])
    return (await broker.controller.create_topics([new], timeout=5))[name]


async def next_controller(cluster: FakeCluster) -> FakeBroker:
    """Return the controller after the first."""
    await cluster.kill(1)
    second = cluster.brokers[2]
    await until(lambda: second.controller.active and not second.controller.queued)
    return second


class FullRequestRecorder(FakeReplicas):
    """A recorder of the last full request."""

    full: LeaderAndIsrRequest

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if request.type == 2:
            self.full = request
        return await super().apply_leader_and_isr(request)


@pytest.mark.parametrize("node", NODES)
async def test_topic_with_a_damaged_node_is_ignored(cluster: FakeCluster, node: str) -> None:
    await cluster.start(2)
    for name in ("old", "t"):
        assert isinstance(await create(cluster.brokers[1], name), CreatedTopic)
    session = cluster.store.session()
    await session.set(*NODES[node])
    second = await next_controller(cluster)
    await until(lambda: second.cache.topics.keys() == {"t"})
    await until(lambda: second.replicas.states["t", 0].leader == 2)
    answer = await create(second, "old")
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.TOPIC_ALREADY_EXISTS
    data, _ = await session.get(NODES[node][0])
    assert data == NODES[node][1]
    assert not second.replicas.deleted


async def test_no_replica_of_a_damaged_topic_is_a_stray(cluster: FakeCluster) -> None:
    second = await cluster.start(2)
    for name in ("old", "t"):
        await create(cluster.brokers[1], name)
    second.receiver._replicas = second.replicas = FullRequestRecorder()
    await cluster.store.session().set(*NODES["topic"])
    await next_controller(cluster)
    await until(lambda: ("t", 0) in second.replicas.states)
    told = {
        each.topic_name: len(each.partition_states) for each in second.replicas.full.topic_states
    }
    assert told == {"t": 1, "old": 0}


@pytest.mark.parametrize(("name", "data"), [("abc", b"{}"), ("1_0", b"{}"), ("7", b"?")])
async def test_damaged_registration_is_ignored(
    cluster: FakeCluster, name: str, data: bytes
) -> None:
    await create(cluster.brokers[1], "t")
    await cluster.store.session().create(f"{znodes.BROKER_IDS}/{name}", data)
    await cluster.start(2)
    second = await next_controller(cluster)
    await until(lambda: second.cache.brokers.keys() == {2})


async def test_damaged_log_dir_event_is_deleted(cluster: FakeCluster) -> None:
    await cluster.store.session().create(znodes.LOG_DIR_EVENT, b"?", sequence=True)
    await until(lambda: not cluster.store.tree.children(znodes.LOG_DIR_EVENTS))
    assert cluster.brokers[1].controller.active
