"""Reads from a server of the ensemble that lags behind an answered change of another session."""

from collections.abc import Sequence
from typing import Any

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.registration import partition_exists
from barnabas.broker.cluster.znodes import TopicAssignment
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.broker.store.metadata_store import Create, Delete, NoNode, Op, SetData, Stat
from barnabas.broker.store.tree import TreeNode
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from tests.support.stored_passwords import passwords

CONFIG = znodes.config_path("topics", "t")
TOPIC = znodes.topic_path("t")


class LaggingSession:
    """A session that reads the state at its creation until a transaction of its own is answered."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._session = store.session()
        self._seen: dict[str, TreeNode] | None = dict(store.tree.items())

    async def get(self, path: str) -> tuple[bytes, Stat]:
        if self._seen is None:
            return await self._session.get(path)
        node = self._seen.get(path)
        if node is None:
            raise NoNode(path)
        return node.data, node.stat

    async def multi(self, ops: Sequence[Op]) -> Any:
        self._seen = None
        return await self._session.multi(ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def configs(session: Any) -> Configs:
    return Configs(session, DynamicConfig(BrokerConfig.from_properties({})), 1, passwords())


def created(policy: str) -> Create:
    return Create(CONFIG, znodes.encode_config({"cleanup.policy": policy}))


async def test_topic_missing_on_a_lagging_server_gets_its_configuration(
    store: EmbeddedStore,
) -> None:
    lagging: Any = LaggingSession(store)
    await store.session().multi([created("compact")])
    broker = configs(lagging)
    await broker.load_topics(["t"])
    assert broker.topic("t").compacted


async def test_recreated_topic_does_not_get_the_old_configuration(
    store: EmbeddedStore,
) -> None:
    other = store.session()
    await other.multi([created("compact")])
    lagging: Any = LaggingSession(store)
    await other.multi([Delete(CONFIG)])
    await other.multi([created("delete")])
    broker = configs(lagging)
    await broker.load_topics(["t"])
    assert not broker.topic("t").compacted


async def test_partition_missing_on_a_lagging_server_does_not_count_as_deleted(
    store: EmbeddedStore,
) -> None:
    other = store.session()
    lagging: Any = LaggingSession(store)
    one = TopicAssignment(bytes(16), {0: (1,)})
    await other.multi([Create(TOPIC, znodes.encode_topic(one))])
    assert await partition_exists(lagging, "t", 0)
    lagging = LaggingSession(store)
    two = one._replace(replicas={0: (1,), 1: (1,)})
    await other.multi([SetData(TOPIC, znodes.encode_topic(two))])
    assert await partition_exists(lagging, "t", 1)
    assert not await partition_exists(lagging, "t", 2)
    lagging = LaggingSession(store)
    await other.multi([Delete(TOPIC)])
    assert not await partition_exists(lagging, "t", 0)
