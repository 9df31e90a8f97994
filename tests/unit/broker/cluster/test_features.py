"""Finalized features: their levels, the rules for changes, and how brokers learn of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.features import (
    GROUP_VERSION,
    NEW_CLUSTER,
    SUPPORTED,
    TRANSACTION_REGISTRATION,
    TRANSACTION_VERSION,
    FeatureChange,
    FeatureNotSupported,
    Features,
    UpgradeType,
)
from barnabas.broker.cluster.registration import prepare_cluster, register_broker
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo, FeatureRange, ZnodeError
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import Stat
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.mem_files import MemFiles

DOWN = UpgradeType.SAFE_DOWNGRADE


@pytest.fixture
async def store() -> EmbeddedStore:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    await prepare_cluster(store.session(), "cluster")
    return store


@pytest.fixture
async def session(store: EmbeddedStore) -> EmbeddedSession:
    return store.session()


@pytest.fixture
async def features(session: EmbeddedSession) -> AsyncIterator[Features]:
    features = await started(session)
    yield features
    features.stop()


async def started(session: EmbeddedSession) -> Features:
    """Return features that have read the current levels."""
    features = Features(session)
    await features.start(lambda: None)
    return features


async def refused(features: Features, *changes: FeatureChange) -> str:
    """Return the text of a refusal, after which nothing has changed."""
    before = features.epoch, dict(features.finalized)
    with pytest.raises(KafkaError) as caught:
        await features.update(changes, validate_only=False)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert (features.epoch, dict(features.finalized)) == before
    return str(caught.value.message)


async def test_new_cluster_has_the_highest_levels(features: Features) -> None:
    assert features.finalized == NEW_CLUSTER
    assert features.transaction_version == 2
    assert features.epoch >= 0


async def test_starting_broker_leaves_the_levels_as_they_are(
    session: EmbeddedSession, features: Features
) -> None:
    await features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False)
    await prepare_cluster(session, "cluster")
    again = await started(session)
    assert again.transaction_version == 1
    assert again.epoch == features.epoch


async def test_level_zero_deletes_the_feature(session: EmbeddedSession, features: Features) -> None:
    await features.update([FeatureChange(TRANSACTION_VERSION, 0, DOWN)], validate_only=False)
    assert features.transaction_version == 0
    assert features.finalized == {GROUP_VERSION: 1, TRANSACTION_REGISTRATION: 1}
    data, _ = await session.get(znodes.FEATURE)
    levels = b'{"group.version":1,"barnabas.transaction.registration":1}'
    assert data == b'{"version":2,"status":1,"features":%s}' % levels
    await features.update([FeatureChange(TRANSACTION_VERSION, 2)], validate_only=False)
    assert features.transaction_version == 2


async def test_every_broker_sees_a_change(store: EmbeddedStore, features: Features) -> None:
    other, told = Features(store.session()), asyncio.Event()
    await other.start(told.set)
    await features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False)
    async with asyncio.timeout(10):
        await told.wait()
    await other.catch_up()
    assert other.transaction_version == 1
    assert other.epoch == features.epoch
    other.stop()


async def test_validate_only_changes_nothing(features: Features) -> None:
    before = features.epoch
    await features.update([FeatureChange(TRANSACTION_VERSION, 0, DOWN)], validate_only=True)
    assert (features.transaction_version, features.epoch) == (2, before)
    with pytest.raises(KafkaError):
        await features.update([FeatureChange(TRANSACTION_VERSION, 3)], validate_only=True)


async def test_unchanged_level_makes_no_epoch(features: Features) -> None:
    before = features.epoch
    await features.update([FeatureChange(TRANSACTION_VERSION, 2)], validate_only=False)
    assert features.epoch == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (FeatureChange("metadata.version", 1), "No broker supports this feature"),
        (FeatureChange("metadata.version", 0, DOWN), "No broker supports this feature"),
        (FeatureChange("m" * 32767, 1), "No broker supports this feature"),
        (FeatureChange(TRANSACTION_VERSION, 3), "only supports versions 0-2"),
        (FeatureChange(TRANSACTION_VERSION, -1), "cannot be less than 0"),
        (FeatureChange(TRANSACTION_VERSION, 1), "without setting the upgrade type"),
        (FeatureChange(TRANSACTION_VERSION, 1, 0), "does not support the given upgrade type"),
        (FeatureChange(TRANSACTION_VERSION, 1, 4), "does not support the given upgrade type"),
    ],
)
async def test_impossible_change_is_refused(
    features: Features, change: FeatureChange, reason: str
) -> None:
    assert reason in await refused(features, change)


async def test_downgrade_does_not_raise_a_level(features: Features) -> None:
    await features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False)
    raising = FeatureChange(TRANSACTION_VERSION, 2, UpgradeType.UNSAFE_DOWNGRADE)
    assert "Can't downgrade to a newer version" in await refused(features, raising)


async def test_one_refusal_refuses_all_changes(features: Features) -> None:
    good = FeatureChange(TRANSACTION_REGISTRATION, 0, DOWN)
    await refused(features, good, FeatureChange(TRANSACTION_VERSION, 7))


async def test_last_change_of_a_feature_counts(features: Features) -> None:
    changes = [FeatureChange(TRANSACTION_VERSION, level, DOWN) for level in (9, 0, 1)]
    await features.update(changes, validate_only=False)
    assert features.transaction_version == 1


async def test_level_that_a_live_broker_lacks_is_refused(
    session: EmbeddedSession, features: Features
) -> None:
    await features.update([FeatureChange(TRANSACTION_VERSION, 0, DOWN)], validate_only=False)
    endpoints = (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    able = BrokerInfo(1, endpoints, features=SUPPORTED)
    older = BrokerInfo(2, endpoints, features={TRANSACTION_VERSION: FeatureRange(0, 1)})
    await register_broker(session, able, 0)
    await register_broker(session, older, 0)
    raising = FeatureChange(TRANSACTION_VERSION, 2)
    assert "Broker 2 only supports versions 0-1" in await refused(features, raising)
    await features.update([FeatureChange(TRANSACTION_VERSION, 1)], validate_only=False)
    assert features.transaction_version == 1
    await session.delete(znodes.broker_path(2))
    await features.update([raising], validate_only=False)
    assert features.transaction_version == 2


async def test_node_that_is_no_broker_does_not_count(
    session: EmbeddedSession, features: Features
) -> None:
    await session.create(f"{znodes.BROKER_IDS}/abc")
    await features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False)
    assert features.transaction_version == 1


async def test_concurrent_changes_are_both_made(store: EmbeddedStore, features: Features) -> None:
    other = await started(store.session())
    await asyncio.gather(
        features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False),
        other.update([FeatureChange(TRANSACTION_REGISTRATION, 0, DOWN)], validate_only=False),
    )
    await features.catch_up()
    assert features.finalized == {TRANSACTION_VERSION: 1, GROUP_VERSION: 1}
    other.stop()


async def test_broker_does_not_run_below_a_finalized_level(
    session: EmbeddedSession, features: Features
) -> None:
    await session.set(znodes.FEATURE, znodes.encode_features({TRANSACTION_VERSION: 3}))
    with pytest.raises(FeatureNotSupported, match=r"transaction\.version is finalized at 3"):
        await Features(session).start(lambda: None)
    with pytest.raises(FeatureNotSupported):
        await features.catch_up()


async def test_damaged_node_does_not_count_as_missing(session: EmbeddedSession) -> None:
    await session.set(znodes.FEATURE, b"{}")
    with pytest.raises(ZnodeError):
        await Features(session).start(lambda: None)


async def test_levels_survive_the_loss_of_their_node(
    session: EmbeddedSession, features: Features
) -> None:
    await session.delete(znodes.FEATURE)
    await features.catch_up()
    assert features.transaction_version == 2


async def test_recreated_node_is_a_change(session: EmbeddedSession, features: Features) -> None:
    before = features.epoch
    await session.delete(znodes.FEATURE)
    await session.create(znodes.FEATURE, znodes.encode_features({TRANSACTION_VERSION: 1}))
    await features.catch_up()
    assert features.transaction_version == 1
    assert features.epoch > before


async def test_late_read_changes_nothing(
    session: EmbeddedSession, features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = await session.get(znodes.FEATURE)

    async def get(_path: str) -> tuple[bytes, Stat]:
        return late

    await features.update([FeatureChange(TRANSACTION_VERSION, 1, DOWN)], validate_only=False)
    monkeypatch.setattr(session, "get", get)
    await features.catch_up()
    assert features.transaction_version == 1
