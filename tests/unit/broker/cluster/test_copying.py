"""Metadata are copied to another store completely or not at all."""

from functools import partial
from unittest.mock import ANY

import pytest

from barnabas.broker.cluster import acl_znodes, znodes
from barnabas.broker.cluster.copying import MARKER, CopyRefused, copy_metadata
from barnabas.broker.cluster.features import (
    TRANSACTION_VERSION,
    FeatureChange,
    Features,
    UpgradeType,
)
from barnabas.broker.cluster.internal_topics import in_cluster
from barnabas.broker.cluster.registration import missing_nodes, prepare_cluster
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import Create, MetadataStore, StoreUnavailable
from barnabas.config.broker import BrokerConfig
from tests.support.mem_files import MemFiles

ON_ZOOKEEPER = {
    "zookeeper.connect": "zk",
    "listeners": "A://:9092,B://:9192",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "inter.broker.listener.name": "B",
}


async def empty() -> EmbeddedStore:
    return await open_store(MemFiles(), "/metadata", InlineOffload())


async def filled() -> EmbeddedStore:
    store = await empty()
    session = store.session()
    await prepare_cluster(session, "cluster-a")
    for topic in range(40):
        path = znodes.topic_path(f"t{topic}")
        await session.multi(
            [
                Create(path, b"assignment"),
                Create(f"{path}/partitions"),
                *(Create(f"{path}/partitions/{each}", bytes(2000)) for each in range(20)),
            ]
        )
    await session.create(znodes.CONFIG_CHANGE, b"notice", sequence=True)
    await session.create(znodes.LOG_DIR_EVENT, b"notice", sequence=True)
    await session.create(znodes.CONTROLLER, b"{}", ephemeral=True)
    await session.create(znodes.CONTROLLER_EPOCH, b"7")
    await session.multi(await missing_nodes(session, acl_znodes.PERSISTENT_PATHS))
    await session.create("/kafka-acl/Topic/t1", b"rules")
    await session.create("/kafka-acl-extended/prefixed/Topic/t", b"rules of a prefix")
    for parent in acl_znodes.CHANGES.values():
        await session.create(f"{parent}/acl_changes_", b"notice", sequence=True)
    quota, alice = znodes.encode_config({"consumer_byte_rate": "5"}), "/config/users/alice"
    await session.create(alice, b"a credential")
    await session.multi(
        [
            Create("/config/users/<default>", quota),
            Create(f"{alice}/clients"),
            Create(f"{alice}/clients/app%201", quota),
            Create(f"{alice}/clients/<default>", quota),
            Create("/config/clients/<default>", quota),
            Create("/config/ips/<default>", quota),
            Create("/config/ips/10.0.0.1", quota),
        ]
    )
    tokens = (znodes.DELEGATION_TOKENS, znodes.TOKEN_CHANGES)
    await session.multi(await missing_nodes(session, tokens))
    await session.create(znodes.token_path("id"), b"a token")
    await session.create(znodes.TOKEN_CHANGE, b"id", sequence=True)
    return store


async def copied_to(source: EmbeddedStore, target: MetadataStore) -> int:
    return await copy_metadata(source.tree, target, lambda _topic, overrides: overrides)


def content(store: EmbeddedStore) -> dict[str, bytes]:
    """Return the content that a copy must have."""
    found = {
        path: node.data
        for path, node in store.tree.items()
        if not (
            node.ephemeral_owner
            or "_change_" in path
            or "/acl_changes_" in path
            or "_event_" in path.rpartition("/")[2]
        )
        or path == znodes.LOG_DIR_EVENTS
    }
    levels = znodes.decode_features(found[znodes.FEATURE])
    return found | {znodes.FEATURE: znodes.encode_features(levels)}


async def test_all_persistent_nodes_are_copied() -> None:
    source, target = await filled(), await empty()
    copied = await copied_to(source, target.session())
    assert content(target) == content(source)
    assert copied == len(content(source)) - 1
    assert await target.session().children(znodes.CONFIG_CHANGES) == []
    assert await target.session().children(znodes.LOG_DIR_EVENTS) == []
    assert await target.session().exists(znodes.CONTROLLER) is None


async def test_judged_registrations_of_one_store_do_not_count_in_the_other() -> None:
    """Zxids of the other store start low: its registrations would seem to be old ones."""
    source, target = await filled(), await empty()
    session, path = source.session(), znodes.state_path("t0", 0)
    state = LeaderAndIsr(1, 7, (1,), 3, doubtful=(1,), judged_until=90_000)
    await session.create(path, znodes.encode_state(state))
    await session.create(znodes.state_path("t0", 1), b"damaged")
    await copied_to(source, target.session())
    data, stat = await target.session().get(path)
    copied = znodes.decode_state(data, stat.version)
    assert copied == state
    assert copied.judged_until == znodes.NEVER_JUDGED
    assert await target.session().get(znodes.state_path("t0", 1)) == (b"damaged", ANY)


async def test_feature_epoch_grows_across_stores() -> None:
    """Clients trust the highest epoch, and zxids of another store start low."""
    stores = [await filled(), await empty(), await empty()]
    lower = FeatureChange(TRANSACTION_VERSION, 1, UpgradeType.SAFE_DOWNGRADE)
    epochs = []
    for before, store in zip([None, *stores], stores, strict=False):
        if before is not None:
            await copied_to(before, store.session())
        features = Features(store.session())
        await features.catch_up()
        epochs.append(features.epoch)
    await features.update([lower], validate_only=False)
    epochs.append(features.epoch)
    assert epochs == sorted(set(epochs))
    assert features.transaction_version == 1


class LossySession:
    """A session that is lost after some transactions."""

    def __init__(self, session: EmbeddedSession, transactions: int) -> None:
        self._session = session
        self._left = transactions

    async def multi(self, ops: list[Create]) -> object:
        if not self._left:
            raise StoreUnavailable
        self._left -= 1
        return await self._session.multi(ops)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


@pytest.mark.parametrize("transactions", range(4))
async def test_interrupted_copy_is_no_cluster_and_can_be_repeated(transactions: int) -> None:
    source, target = await filled(), await empty()
    with pytest.raises(StoreUnavailable):
        await copied_to(source, LossySession(target.session(), transactions))  # type: ignore[arg-type]
    assert await target.session().exists(znodes.CLUSTER_ID) is None
    # Meanwhile the broker ran on, and a topic was deleted.
    session = source.session()
    for partition in range(20):
        await session.delete(f"{znodes.topic_path('t0')}/partitions/{partition}")
    await session.delete(f"{znodes.topic_path('t0')}/partitions")
    await session.delete(znodes.topic_path("t0"))
    await copied_to(source, target.session())
    assert content(target) == content(source)


async def test_target_in_use_is_left_alone() -> None:
    source, target = await filled(), await empty()
    await prepare_cluster(target.session(), "cluster-b")
    before = content(target)
    with pytest.raises(CopyRefused, match="not empty: it has admin"):
        await copied_to(source, target.session())
    assert content(target) == before


async def test_interrupted_copy_of_another_cluster_is_left_alone() -> None:
    source, target = await filled(), await empty()
    await target.session().create(MARKER, b"cluster-b")
    with pytest.raises(CopyRefused):
        await copied_to(source, target.session())


async def test_complete_copy_is_not_repeated() -> None:
    """The process that made it may have been killed before it reported the end."""
    source, target = await filled(), await empty()
    count = await copied_to(source, target.session())
    before = dict(target.tree.items())
    assert await copied_to(source, target.session()) == count
    assert dict(target.tree.items()) == before


@pytest.mark.parametrize("side", ["source", "target"])
async def test_copy_that_a_broker_uses_is_left_alone(side: str) -> None:
    stores = {"source": await filled(), "target": await empty()}
    source, target = stores.values()
    await copied_to(source, target.session())
    await source.session().delete(znodes.CONTROLLER)
    assert (
        await ControllerElection(stores[side].session(), 1, SystemClock()).become_controller()
        is not None
    )
    await refused_as_not_empty(source, target)


async def test_copy_that_a_broker_is_about_to_use_is_left_alone() -> None:
    source, target = await filled(), await empty()
    await copied_to(source, target.session())
    await target.session().create(znodes.broker_path(1), ephemeral=True)
    await refused_as_not_empty(source, target)


async def refused_as_not_empty(source: EmbeddedStore, target: EmbeddedStore) -> None:
    before = dict(target.tree.items())
    with pytest.raises(CopyRefused, match="not empty"):
        await copied_to(source, target.session())
    assert dict(target.tree.items()) == before


async def test_source_without_a_cluster_is_not_copied() -> None:
    source, target = await empty(), await empty()
    with pytest.raises(CopyRefused, match="no cluster"):
        await copied_to(source, target.session())
    assert await target.session().children("/") == []


async def test_internal_topics_lose_single_broker_overrides() -> None:
    source, target = await empty(), await empty()
    session = source.session()
    await prepare_cluster(session, "cluster-a")
    alone = {"min.insync.replicas": "1"}
    of_topics = {
        CONSUMER_OFFSETS: {"cleanup.policy": "compact", **alone},
        TRANSACTION_STATE: alone,
        "orders": alone,
    }
    for topic, overrides in of_topics.items():
        path = znodes.config_path("topics", topic)
        await session.create(path, znodes.encode_config(overrides))
    await session.create(znodes.config_path("topics", "torn"), b"{")
    config = BrokerConfig.from_properties(ON_ZOOKEEPER)
    await copy_metadata(source.tree, target.session(), partial(in_cluster, config=config))
    found = {
        topic: znodes.decode_config(target.tree.node(znodes.config_path("topics", topic)).data)
        for topic in of_topics
    }
    assert found == {
        CONSUMER_OFFSETS: {"cleanup.policy": "compact"},
        TRANSACTION_STATE: {"min.insync.replicas": "2"},
        "orders": alone,
    }
    assert target.tree.node(znodes.config_path("topics", "torn")).data == b"{"
