"""Configurations of groups are followed by every broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs, Values
from barnabas.broker.cluster.followed_nodes import KEPT_CHANGES
from barnabas.broker.cluster.registration import prepare_cluster
from barnabas.broker.groups.configs import GroupConfigs
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import Create, Delete
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from tests.support.mem_files import MemFiles
from tests.support.stored_passwords import passwords

SESSION = "consumer.session.timeout.ms"


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    await prepare_cluster(store.session(), "cluster")
    yield store
    await store.close()


class Member:
    """A broker with the configurations of groups that it knows."""

    def __init__(self, store: EmbeddedStore, broker_id: int, **properties: str) -> None:
        texts = {
            f"group.consumer.{key.replace('_', '.')}": each for key, each in properties.items()
        }
        config = BrokerConfig.from_properties({"broker.id": str(broker_id), **texts})
        self.configs = Configs(store.session(), DynamicConfig(config), broker_id, passwords())
        self.groups = GroupConfigs(self.configs)
        self.news = asyncio.Event()

    async def start(self) -> GroupConfigs:
        await self.configs.start(self.news.set)
        await self.groups.start()
        return self.groups

    async def alter(self, group: str, **values: str) -> None:
        async def changed(_: Values) -> Values:
            return {f"consumer.{key.replace('_', '.')}": text for key, text in values.items()}

        await self.configs.alter("groups", group, changed)

    async def catch_up(self) -> None:
        await asyncio.wait_for(self.news.wait(), 5)
        self.news.clear()
        await self.configs.catch_up()


async def test_group_without_values_has_those_of_the_broker(store: EmbeddedStore) -> None:
    plain = await Member(store, 1).start()
    assert plain.settings("g") == ConsumerGroupSettings()
    member = Member(
        store,
        2,
        migration_policy="UPGRADE",
        assignors="range",
        max_size="7",
        session_timeout_ms="50000",
        regex_refresh_interval_ms="10000",
    )
    assert (await member.start()).settings("g") == ConsumerGroupSettings(
        session_timeout_ms=50_000,
        assignors=("range",),
        max_size=7,
        migration_policy=MigrationPolicy.UPGRADE,
        regex_refresh_interval_ms=10_000,
    )


async def test_values_of_a_group_reach_all_brokers_and_those_that_start(
    store: EmbeddedStore,
) -> None:
    here, there = Member(store, 1), Member(store, 2)
    await here.start()
    await there.start()
    await here.alter("g", session_timeout_ms="50000", assignor_offload_enable="false")
    await there.catch_up()
    wanted = ConsumerGroupSettings(session_timeout_ms=50_000, offloads_assignment=False)
    for member in (here, there, late := Member(store, 3)):
        if member is late:
            await late.start()
        assert member.groups.settings("g") == wanted
        assert member.groups.settings("other") == ConsumerGroupSettings()
    await here.alter("g")
    await there.catch_up()
    assert here.groups.settings("g") == there.groups.settings("g") == ConsumerGroupSettings()


async def test_new_values_of_the_broker_reach_groups_with_and_without_own_ones(
    store: EmbeddedStore,
) -> None:
    member = Member(store, 1)
    await member.start()
    await member.alter("g", session_timeout_ms="50000")
    dynamic = member.configs.broker
    dynamic.apply(cluster_defaults={"group.consumer.assignment.interval.ms": "0"}, overrides={})
    assert member.groups.settings("other").assignment_interval_ms == 0
    assert member.groups.settings("g") == ConsumerGroupSettings(
        session_timeout_ms=50_000, assignment_interval_ms=0
    )


async def test_values_that_kafka_stored_are_dropped_and_named(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"share.auto.offset.reset": "earliest", SESSION: "soon"}
    path = znodes.config_path("groups", "g")
    await store.session().multi([Create(path, znodes.encode_config(values))])
    groups = await Member(store, 1).start()
    assert groups.settings("g") == ConsumerGroupSettings()
    assert "group configuration refused" in caplog.text
    assert "soon" in caplog.text


async def test_group_without_a_node_is_forgotten_after_missed_changes(
    store: EmbeddedStore,
) -> None:
    member, other = Member(store, 1), Member(store, 2)
    await member.start()
    await other.start()
    await member.alter("g", session_timeout_ms="50000")
    await store.session().multi([Delete(znodes.config_path("groups", "g"), -1)])
    for number in range(KEPT_CHANGES + 1):
        await other.alter("h", session_timeout_ms=str(45_000 + number))
    await member.catch_up()
    assert member.groups.settings("g") == ConsumerGroupSettings()
    assert member.groups.settings("h").session_timeout_ms == 45_000 + KEPT_CHANGES


async def test_values_that_cannot_be_read_leave_the_ones_before(store: EmbeddedStore) -> None:
    member = Member(store, 1)
    await member.start()
    await member.alter("g", session_timeout_ms="50000")
    path = znodes.config_path("groups", "g")
    notice = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change("groups/g"), sequence=True)
    await store.session().multi([Delete(path, -1), Create(path, b"{"), notice])
    await member.catch_up()
    assert member.groups.settings("g").session_timeout_ms == 50_000
