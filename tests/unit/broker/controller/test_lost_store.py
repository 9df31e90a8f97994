"""The controller without its store: it resigns, and no leadership moves for that."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.store.metadata_store import SetData, StoreUnavailable
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.controller.harness import (
    FakeBroker,
    FakeCluster,
    eventually,
    open_cluster,
    until,
)
from tests.unit.broker.controller.trio import Trio

SESSION = 0.3
"""Seconds. The waits of the tests are fractions of it."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await open_cluster()
    cluster.session_timeout = SESSION
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def create(broker: FakeBroker, name: str, *replicas: int) -> CreatedTopic | KafkaError:
    new = NewTopic(name, assignments=[(0, replicas)])
    return (await broker.controller.create_topics([new], timeout=5))[name]


def state(cluster: FakeCluster, topic: str) -> LeaderAndIsr:
    node = cluster.store.tree.node(znodes.state_path(topic, 0))
    return znodes.decode_state(node.data, node.version)


def epoch(cluster: FakeCluster) -> int:
    return znodes.decode_controller_epoch(cluster.store.tree.node(znodes.CONTROLLER_EPOCH).data)


async def test_controller_without_store_resigns_and_is_elected_again(
    cluster: FakeCluster,
) -> None:
    broker = await cluster.start(1)
    await create(broker, "t", 1)
    broker.session.silence = SESSION * 0.6
    broker.session.cut = True
    assert broker.controller.active
    broker.session.silence = SESSION * 0.7
    await until(lambda: not broker.controller.active)
    with pytest.raises(KafkaError) as caught:
        await create(broker, "u", 1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    broker.session.cut, broker.session.silence = False, 0.0
    await until(lambda: broker.controller.active)
    # The new term fences the requests of the earlier one.
    assert epoch(cluster) == 2
    assert isinstance(await create(broker, "u", 1), CreatedTopic)
    assert state(cluster, "t") == LeaderAndIsr(1, 0, (1,), 1)


async def test_unanswered_read_is_not_fatal(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    broker.session.cut = True
    with pytest.raises(KafkaError) as caught:
        await create(broker, "t", 1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert not broker.controller.active
    broker.session.cut = False
    await until(lambda: broker.controller.active)
    assert isinstance(await create(broker, "t", 1), CreatedTopic)


async def test_lost_answer_of_a_write_makes_the_controller_reload(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    broker.session.lose_answer = lambda ops: len(ops) > 3
    with pytest.raises(KafkaError):
        await create(broker, "t", 1)
    broker.session.lose_answer = lambda _ops: False
    await until(lambda: broker.controller.active)
    await until(lambda: ("t", 0) in broker.replicas.states)
    answer = await create(broker, "t", 1)
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_manual_change_in_the_store_is_not_another_controller(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    await cluster.start(2)
    await create(broker, "t", 2, 1)
    other = cluster.store.session()
    moved = LeaderAndIsr(1, 7, (1, 2), 1)
    await other.multi([SetData(znodes.state_path("t", 0), znodes.encode_state(moved))])
    await cluster.kill(2)
    await until(lambda: state(cluster, "t").isr == (1,))
    assert state(cluster, "t").leader_epoch == 7
    await until(lambda: broker.controller.active)
    await other.close()


async def test_renewed_session_takes_part_in_the_election(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    await create(broker, "t", 1)
    await cluster.lose_session(1)
    await cluster.renew_session(1)
    await until(lambda: broker.controller.active and epoch(cluster) == 2)
    await until(lambda: broker.replicas.full_requests == 2)
    # Its sole replica was never away. Proposals with its earlier broker epoch fail.
    assert state(cluster, "t") == LeaderAndIsr(1, 0, (1,), 1)
    assert broker.replicas.states["t", 0].leader_epoch == 0


async def test_another_broker_is_elected_when_the_session_ends(cluster: FakeCluster) -> None:
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.lose_session(1)
    await until(lambda: second.controller.active)
    await until(lambda: not first.controller.active)
    await cluster.renew_session(1)
    await until(lambda: first.cache.controller_id == 2)
    assert second.controller.active
    assert not first.controller.active


async def test_no_leader_moves_when_all_registrations_end_at_once(cluster: FakeCluster) -> None:
    brokers = [await cluster.start(each) for each in (1, 2, 3)]
    await create(brokers[0], "t", 2, 3)
    await create(brokers[0], "u", 3, 1)
    for each in (1, 2, 3):
        await cluster.lose_session(each)
    await cluster.renew_session(1)
    await until(lambda: brokers[0].controller.active and epoch(cluster) > 1)
    await until(lambda: brokers[0].replicas.full_requests > 1)
    assert state(cluster, "t") == LeaderAndIsr(2, 0, (2, 3), 1)
    for each in (2, 3):
        await cluster.renew_session(each)
    await until(lambda: state(cluster, "t").leader_epoch == 1)
    assert state(cluster, "t").leader == 2
    assert set(state(cluster, "t").isr) == {2, 3}
    assert state(cluster, "u").leader == 3


async def test_leader_that_returns_first_keeps_its_leadership() -> None:
    """The first replica is only expected back: it has died meanwhile."""
    trio = Trio((await open_cluster()).store)
    # No wait for missing brokers ends here.
    trio.session_timeout = 3600
    await trio.begin()
    await trio.lose_session(2)
    await until(lambda: trio.state().leader == 3)
    await trio.renew_session(2)
    before = trio.state()

    async def everybody_is_in_sync() -> bool:
        epoch, version = before.leader_epoch, before.partition_epoch
        await trio.propose(3, 1, 2, leader=3, leader_epoch=epoch, partition_epoch=version)
        return trio.state().isr == (3, 1, 2)

    await eventually(everybody_is_in_sync)
    for each in (1, 2, 3):
        await trio.lose_session(each)
    await trio.renew_session(3)
    await until(lambda: trio.state().leader_epoch > before.leader_epoch)
    assert (trio.state().leader, trio.state().isr) == (3, (3, 1, 2))
    await trio.close()


async def test_broker_that_does_not_return_within_a_session_is_gone(cluster: FakeCluster) -> None:
    brokers = [await cluster.start(each) for each in (1, 2, 3)]
    await create(brokers[0], "t", 2, 3)
    for each in (1, 2, 3):
        await cluster.lose_session(each)
    for each in (1, 3):
        await cluster.renew_session(each)
    await until(lambda: any(each.controller.active for each in brokers))
    assert state(cluster, "t").leader == 2
    await until(lambda: state(cluster, "t").leader == 3)
    assert state(cluster, "t").isr == (3,)


async def test_single_dead_controller_is_replaced_at_once(cluster: FakeCluster) -> None:
    cluster.session_timeout = 3600
    brokers = [await cluster.start(each) for each in (1, 2, 3)]
    await create(brokers[0], "t", 1, 2, 3)
    await cluster.kill(1)
    await until(lambda: state(cluster, "t").leader == 2)


async def test_failure_of_the_embedded_store_is_fatal() -> None:
    cluster = await open_cluster()
    broker = await cluster.start(1)
    broker.session.cut = True
    with pytest.raises(StoreUnavailable):
        await create(broker, "t", 1)
    assert len(cluster.fatal) == 1
    broker.session.cut = False
    await cluster.close()


async def test_oversized_topic_does_not_depose_the_controller(cluster: FakeCluster) -> None:
    """A controller that treated it as a failure of its own would stop, and then the next one."""
    broker = await cluster.start(1)
    large = NewTopic(
        "large",
        assignments=[(0, (1,))],
        configs={"follower.replication.throttled.replicas": "0:1," * 250_000},
    )
    with pytest.raises(KafkaError) as caught:
        await broker.controller.create_topics([large], timeout=5)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert isinstance(await create(broker, "small", 1), CreatedTopic)
    assert epoch(cluster) == 1
