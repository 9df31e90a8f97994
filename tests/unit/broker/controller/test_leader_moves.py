"""Leader elections on request, and the automatic return of leaderships to preferred replicas."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.controller.replica_admin import LeaderBalance
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.controller.four_brokers import AT, Cluster
from tests.unit.broker.controller.harness import eventually


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = await Cluster.of_four((1, 2), (2, 3))
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def elect(
    cluster: Cluster, *partitions: TopicPartition, unclean: bool = False
) -> dict[TopicPartition, ErrorCode | None]:
    answers = await cluster.admin.elect_leaders(partitions or None, unclean=unclean, timeout=5)
    return {at: None if error is None else error.code for at, error in answers.items()}


async def test_preferred_replica_leads_again_once_in_sync(cluster: Cluster) -> None:
    other = TopicPartition("t", 1)
    await cluster.kill(2)
    await eventually(lambda: _leader_of(cluster, other, 3))
    assert await elect(cluster, other) == {other: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    await cluster.start(2)
    assert await elect(cluster, other) == {other: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    await cluster.in_sync(3, 2, at=other)
    before = await cluster.state(other)
    assert await elect(cluster, other) == {other: None}
    after = await cluster.state(other)
    assert (after.leader, after.leader_epoch) == (2, before.leader_epoch + 1)
    assert set(after.isr) == {2, 3}
    assert cluster.brokers[2].replicas.states["t", 1].leader == 2
    assert await elect(cluster, other) == {other: ErrorCode.ELECTION_NOT_NEEDED}
    assert await elect(cluster) == {
        AT: ErrorCode.ELECTION_NOT_NEEDED,
        other: ErrorCode.ELECTION_NOT_NEEDED,
    }


async def test_unknown_partitions_have_no_election(cluster: Cluster) -> None:
    nowhere = [TopicPartition("u", 0), TopicPartition("t", 9)]
    assert await elect(cluster, *nowhere) == dict.fromkeys(
        nowhere, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


async def test_unclean_election_takes_any_online_replica(cluster: Cluster) -> None:
    other = TopicPartition("t", 1)
    assert await elect(cluster, other, unclean=True) == {other: ErrorCode.ELECTION_NOT_NEEDED}
    await cluster.in_sync(2, at=other)
    await cluster.kill(2)
    await eventually(lambda: _leader_of(cluster, other, -1))
    assert await elect(cluster, other) == {other: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert await elect(cluster, other, unclean=True) == {other: None}
    state = await cluster.state(other)
    assert (state.leader, state.isr) == (3, (3,))
    await cluster.kill(3)
    await eventually(lambda: _leader_of(cluster, other, -1))
    assert await elect(cluster, other, unclean=True) == {
        other: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    }


async def _leader_of(cluster: Cluster, at: TopicPartition, leader: int) -> bool:
    return (await cluster.state(at)).leader == leader


def balance(cluster: Cluster, **keys: object) -> LeaderBalance:
    config = BrokerConfig().replace(**keys)
    broker = next(each for each in cluster.brokers.values() if each.controller.active)
    return LeaderBalance(broker.controller, lambda: config)


async def lose_and_regain(cluster: Cluster, broker: int, *led: TopicPartition) -> None:
    """Move a broker's leaderships to others, then bring it back in sync."""
    await cluster.kill(broker)
    for at in led:
        await eventually(lambda at=at: _leader_is_not(cluster, at, broker))  # type: ignore[misc]
    await cluster.start(broker)
    for at in led:
        state = await cluster.state(at)
        await cluster.in_sync(*state.isr, broker, at=at)


async def _leader_is_not(cluster: Cluster, at: TopicPartition, leader: int) -> bool:
    return (await cluster.state(at)).leader not in (leader, -1)


async def test_leaderships_return_to_a_restarted_broker(cluster: Cluster) -> None:
    other = TopicPartition("t", 1)
    await lose_and_regain(cluster, 2, other)
    await balance(cluster, auto_leader_rebalance_enable=False).balance()
    assert (await cluster.state(other)).leader == 3
    await balance(cluster, leader_imbalance_per_broker_percentage=100).balance()
    assert (await cluster.state(other)).leader == 3
    await balance(cluster).balance()
    assert (await cluster.state(other)).leader == 2
    before = await cluster.state(AT)
    await balance(cluster).balance()
    assert await cluster.state(AT) == before


async def test_leaderships_stay_during_reassignment_or_lag_of_the_preferred_replica(
    cluster: Cluster,
) -> None:
    other = TopicPartition("t", 1)
    await lose_and_regain(cluster, 2, other)
    await cluster.in_sync(3, at=other)
    await balance(cluster).balance()
    assert (await cluster.state(other)).leader == 3
    await cluster.in_sync(3, 2, at=other)
    await cluster.reassign((3, 4))
    await balance(cluster).balance()
    assert (await cluster.state(other)).leader == 3
    await cluster.in_sync(1, 3, 4)
    await balance(cluster).balance()
    assert (await cluster.state(other)).leader == 2


async def test_broker_that_is_not_controller_balances_nothing(cluster: Cluster) -> None:
    other = TopicPartition("t", 1)
    await lose_and_regain(cluster, 2, other)
    config = BrokerConfig()
    await LeaderBalance(cluster.brokers[3].controller, lambda: config).balance()
    assert (await cluster.state(other)).leader == 3
