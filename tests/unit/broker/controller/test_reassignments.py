"""Reassignments on request, while brokers start and stop."""

from collections.abc import AsyncIterator, Sequence

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.rules.reassignment import Assignment
from barnabas.broker.controller.topic_admin import NewPartitions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.controller.four_brokers import AT, Cluster
from tests.unit.broker.controller.harness import eventually, until


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = await Cluster.of_four((1, 2), (2, 3))
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def test_replicas_are_added_before_others_are_removed(cluster: Cluster) -> None:
    assert await cluster.reassign((3, 4)) is None
    assert await cluster.ongoing() == {AT: Assignment((3, 4, 1, 2), (3, 4), (1, 2))}
    topic = await cluster.assignment()
    assert (topic.replicas[0], topic.adding, topic.removing) == (
        (3, 4, 1, 2),
        {0: (3, 4)},
        {0: (1, 2)},
    )
    for broker in (1, 2, 3, 4):
        told = cluster.brokers[broker].replicas.states["t", 0]
        assert (told.leader, told.leader_epoch, told.replicas) == (1, 1, [3, 4, 1, 2])
        assert (told.adding_replicas, told.removing_replicas) == ([3, 4], [1, 2])
        assert told.is_new == (broker in (3, 4))
    assert await cluster.in_sync(1, 2, 3) == ErrorCode.NONE
    assert await cluster.ongoing() != {}
    assert await cluster.in_sync(1, 2, 3, 4) == ErrorCode.NONE
    await until(lambda: cluster.brokers[1].replicas.deleted == [("t", 0)])
    await until(lambda: cluster.brokers[2].replicas.deleted == [("t", 0)])
    assert await cluster.ongoing() == {}
    topic = await cluster.assignment()
    assert (topic.replicas[0], topic.adding, topic.removing) == ((3, 4), {}, {})
    assert await cluster.state() == LeaderAndIsr(3, 3, (3, 4), 1)
    told = cluster.brokers[4].replicas.states["t", 0]
    assert (told.leader, told.replicas, told.isr) == (3, [3, 4], [3, 4])
    assert cluster.brokers[3].replicas.deleted == []
    # The neighbour partition did not change.
    assert await cluster.state(TopicPartition("t", 1)) == LeaderAndIsr(2, 0, (2, 3), 1)
    assert ("t", 1) in cluster.brokers[2].replicas.states


async def test_every_broker_gets_the_new_replicas(cluster: Cluster) -> None:
    await cluster.reassign((3, 4))
    await cluster.in_sync(1, 2, 3, 4)

    def known() -> list[list[int]]:
        caches = [broker.cache for broker in cluster.brokers.values()]
        found = [cache.partition("t", 0) for cache in caches]
        return [list(each.replicas) for each in found if each is not None]

    await until(lambda: known() == [[3, 4]] * 4)


async def test_impossible_reassignment_is_refused(cluster: Cluster) -> None:
    async def code(replicas: Sequence[int] | None, at: TopicPartition = AT) -> ErrorCode | None:
        error = await cluster.reassign(replicas, at)
        return None if error is None else error.code

    assert await code((1,), TopicPartition("u", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code((1,), TopicPartition("t", 7)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code(()) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code((1, 1)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code((1, 9)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code((-1,)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await code(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    error = await cluster.reassign((3,), factor_may=False)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert await cluster.ongoing() == {}
    assert await cluster.reassign((3, 4), factor_may=False) is None


async def test_partition_with_the_target_replicas_is_left_alone(cluster: Cluster) -> None:
    before = await cluster.state()
    assert await cluster.reassign((1, 2)) is None
    assert await cluster.state() == before


async def test_replica_whose_broker_is_down_may_stay(cluster: Cluster) -> None:
    await cluster.kill(2)
    assert await cluster.reassign((2, 3)) is None
    assert await cluster.ongoing() == {AT: Assignment((2, 3, 1), (3,), (1,))}


async def test_cancel_returns_to_the_origin_and_deletes_added_replicas(cluster: Cluster) -> None:
    await cluster.reassign((3, 4))
    await cluster.in_sync(1, 2, 3)
    assert await cluster.reassign(None) is None
    for broker in (3, 4):
        await until(lambda b=broker: cluster.brokers[b].replicas.deleted == [("t", 0)])  # type: ignore[misc]
    assert await cluster.ongoing() == {}
    assert (await cluster.assignment()).replicas[0] == (1, 2)
    assert await cluster.state() == LeaderAndIsr(1, 2, (1, 2), 1)


async def test_proposal_for_earlier_replicas_is_fenced(cluster: Cluster) -> None:
    before = await cluster.state()
    await cluster.reassign((3, 4))
    topic = await cluster.assignment()
    proposal = PartitionData(
        partition_index=0,
        leader_epoch=before.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=1)],
        partition_epoch=before.partition_epoch,
    )
    answer = await cluster.controller.alter_partition(
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=cluster.brokers[1].info.epoch,
            topics=[TopicData(topic_id=topic.topic_id, partitions=[proposal])],
        )
    )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_next_controller_continues_a_reassignment(cluster: Cluster) -> None:
    await cluster.reassign((3, 4))
    await cluster.in_sync(1, 2, 3)
    await cluster.kill(1)
    await eventually(lambda: _leads(cluster, 3))
    assert await cluster.ongoing() == {AT: Assignment((3, 4, 1, 2), (3, 4), (1, 2))}
    assert await cluster.in_sync(3, 2, 4) == ErrorCode.NONE
    assert await cluster.ongoing() == {}
    assert (await cluster.assignment()).replicas[0] == (3, 4)
    await until(lambda: cluster.brokers[2].replicas.deleted == [("t", 0)])


async def test_next_controller_finishes_a_due_reassignment(cluster: Cluster) -> None:
    """The old one died between the answer of AlterPartition and the end of the reassignment."""
    await cluster.reassign((3, 4))
    state = await cluster.state()
    session = cluster.store.session()
    data = znodes.encode_state(LeaderAndIsr(1, state.leader_epoch, (1, 2, 3, 4), 1))
    await session.set(znodes.state_path("t", 0), data, state.partition_epoch)
    await session.close()
    await cluster.kill(1)
    await eventually(lambda: _has_replicas(cluster, (3, 4)))
    assert set((await cluster.state()).isr) == {3, 4}


async def test_topic_deleted_during_reassignment_is_gone_everywhere(cluster: Cluster) -> None:
    await cluster.reassign((3, 4))
    await cluster.controller.delete_topics(["t"], timeout=5)
    assert await cluster.ongoing() == {}
    for broker in cluster.brokers.values():
        assert not broker.replicas.states
    await cluster.controller.create_topics([NewTopic("t", assignments=[(0, [1])])], timeout=5)
    assert await cluster.ongoing() == {}


async def test_topic_that_grows_keeps_its_reassignment(cluster: Cluster) -> None:
    await cluster.reassign((3, 4, 1))
    await cluster.controller.create_partitions([NewPartitions("t", 3)], timeout=5)
    topic = await cluster.assignment()
    assert (topic.adding, topic.removing) == ({0: (3, 4)}, {0: (2,)})
    assert len(topic.replicas[2]) == 3


async def test_many_partitions_of_many_topics_move_at_once(cluster: Cluster) -> None:
    names = [f"many{number}" for number in range(20)]
    await cluster.controller.create_topics(
        [NewTopic(name, assignments=[(p, [1, 2]) for p in range(100)]) for name in names], timeout=5
    )
    wanted = {TopicPartition(name, p): (2, 3) for name in names for p in range(100)}
    answers = await cluster.admin.alter_reassignments(wanted, allow_factor_change=True, timeout=5)
    assert set(answers.values()) == {None}
    assert len(await cluster.ongoing()) == 2000
    named = await cluster.admin.list_reassignments({"many3": [5, 999], "no": [0]}, timeout=5)
    assert list(named) == [TopicPartition("many3", 5)]


async def _leads(cluster: Cluster, broker: int) -> bool:
    return (await cluster.state()).leader == broker


async def _has_replicas(cluster: Cluster, replicas: tuple[int, ...]) -> bool:
    return (await cluster.assignment()).replicas[0] == replicas
