"""The deletion of topics while brokers are down, or the controller that began it has died."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from tests.unit.broker.controller.harness import FakeBroker, FakeCluster, open_cluster, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await open_cluster()
    for broker in (1, 2, 3):
        await cluster.start(broker)
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def create(broker: FakeBroker, name: str, replicas: tuple[int, ...] = (1, 2, 3)) -> bytes:
    new = NewTopic(name, assignments=[(0, replicas)])
    answer = (await broker.controller.create_topics([new], timeout=5))[name]
    assert isinstance(answer, CreatedTopic)
    return answer.topic_id


async def test_returning_broker_does_not_get_deleted_topics(cluster: FakeCluster) -> None:
    controller = cluster.brokers[1]
    await create(controller, "gone")
    await create(controller, "kept")
    await cluster.kill(3)
    await controller.controller.delete_topics(["gone"], timeout=5)
    await until(lambda: cluster.brokers[2].replicas.deleted == [("gone", 0)])
    assert cluster.store.tree.children(znodes.DELETE_TOPICS) == []
    back = await cluster.start(3)
    assert list(back.replicas.states) == [("kept", 0)]
    assert list(back.cache.topics) == ["kept"]


async def test_returning_broker_gets_the_new_topic_of_a_deleted_name(
    cluster: FakeCluster,
) -> None:
    controller = cluster.brokers[1]
    before = await create(controller, "t")
    await cluster.kill(3)
    await controller.controller.delete_topics(["t"], timeout=5)
    after = await create(controller, "t", (1, 2))
    back = await cluster.start(3)
    assert not back.replicas.states
    assert back.cache.topic_by_id(before) is None
    assert back.cache.topic_by_id(after) is not None


async def test_next_controller_finishes_a_deletion(cluster: FakeCluster) -> None:
    await create(cluster.brokers[1], "t")
    session = cluster.store.session()
    await session.create(znodes.delete_topic_path("t"))
    await session.close()
    await cluster.kill(1)
    for broker in (2, 3):
        known = cluster.brokers[broker]
        await until(lambda known=known: known.replicas.deleted == [("t", 0)])
        await until(lambda known=known: not known.cache.topics)
    assert cluster.store.tree.children(znodes.TOPICS) == []
    assert cluster.store.tree.children(znodes.DELETE_TOPICS) == []


async def test_deletion_mark_without_a_topic_is_deleted(cluster: FakeCluster) -> None:
    """A manual change in the store has made it."""
    await cluster.store.session().create(znodes.delete_topic_path("t"))
    await cluster.kill(1)
    await until(lambda: not cluster.store.tree.children(znodes.DELETE_TOPICS))
    second = next(each for each in cluster.brokers.values() if each.controller.active)
    await create(second, "t", (2, 3))
    await cluster.kill(second.info.id)
    (last,) = cluster.brokers.values()
    await until(lambda: last.replicas.states["t", 0].leader == last.info.id)
    assert not last.replicas.deleted


async def test_deletion_mark_of_an_unreadable_topic_stays(cluster: FakeCluster) -> None:
    """The topic will be deleted once its node can be read."""
    await create(cluster.brokers[1], "t")
    session = cluster.store.session()
    await session.set(znodes.topic_path("t"), b"damaged")
    await session.create(znodes.delete_topic_path("t"))
    await cluster.kill(1)
    await until(lambda: all(not each.cache.topics for each in cluster.brokers.values()))
    assert cluster.store.tree.children(znodes.DELETE_TOPICS) == ["t"]
