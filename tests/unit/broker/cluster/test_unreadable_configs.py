"""Configurations in the format of another version stop no broker."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.registration import prepare_cluster
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedSession, open_store
from barnabas.broker.store.metadata_store import Create
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from tests.support.mem_files import MemFiles
from tests.support.stored_passwords import passwords

CONFIG = znodes.config_path("topics", "t")
KAFKAS = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
"""A notification as Kafka wrote it before 0.10."""


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedSession]:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    session = store.session()
    await prepare_cluster(session, "cluster")
    yield session
    await store.close()


async def begun(store: EmbeddedSession) -> Configs:
    """Return the configurations of a broker that starts."""
    configs = Configs(store, DynamicConfig(BrokerConfig.from_properties({})), 1, passwords())
    await configs.start(lambda: None)
    await configs.load_topics(await configs.names("topics"))
    return configs


async def stored(store: EmbeddedSession, **values: str) -> None:
    texts = {key.replace("_", "."): value for key, value in values.items()}
    await put(store, znodes.encode_config(texts))


async def put(store: EmbeddedSession, data: bytes, path: str = CONFIG) -> None:
    if await store.exists(path) is None:
        await store.create(path, data)
    else:
        await store.set(path, data)


async def noticed(store: EmbeddedSession, data: bytes | None = None) -> None:
    notice = znodes.encode_config_change("topics/t") if data is None else data
    await store.multi([Create(znodes.CONFIG_CHANGE, notice, sequence=True)])


async def test_value_of_another_version_leaves_the_previous_one(store: EmbeddedSession) -> None:
    await stored(store, cleanup_policy="compact", segment_ms="5")
    configs = await begun(store)
    await stored(store, cleanup_policy="sift", segment_ms="6", sift_ms="7")
    await noticed(store)
    await configs.catch_up()
    topic = configs.topic("t")
    assert (topic.cleanup_policy, topic.segment_ms) == (("compact",), 6)


async def test_broker_starts_with_a_value_of_another_version_and_deletes_nothing(
    store: EmbeddedSession,
) -> None:
    await stored(store, cleanup_policy="sift", retention_ms="-2", segment_bytes="x")
    topic = (await begun(store)).topic("t")
    assert not topic.deleted
    assert not topic.compacted
    assert topic.retention_ms == -1
    assert topic.segment_bytes == 1 << 30


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"version":1,"config":[]}'])
async def test_unreadable_configuration_leaves_the_previous_one(
    store: EmbeddedSession, data: bytes
) -> None:
    await stored(store, cleanup_policy="compact")
    await put(store, znodes.encode_config({}), znodes.config_path("topics", "plain"))
    configs = await begun(store)
    await configs.load_topics(["plain"])
    for name in ("t", "plain"):
        await put(store, data, znodes.config_path("topics", name))
        await noticed(store, znodes.encode_config_change(f"topics/{name}"))
    await configs.catch_up()
    assert configs.topic("t").compacted
    assert configs.topic("plain").deleted
    # A broker that starts now has no better choice than to keep all records.
    topic = (await begun(store)).topic("t")
    assert not topic.deleted
    assert not topic.unclean_leader_election_enable
    await stored(store, retention_ms="5")
    await noticed(store)
    await configs.catch_up()
    assert configs.topic("t").deleted


@pytest.mark.parametrize("data", [KAFKAS, b"", b'{"version":2,"entity_path":"topics"}'])
async def test_unreadable_notification_causes_a_full_read(
    store: EmbeddedSession, data: bytes
) -> None:
    await stored(store, retention_ms="5")
    configs = await begun(store)
    await stored(store, retention_ms="6")
    await noticed(store, data)
    await configs.catch_up()
    assert configs.topic("t").retention_ms == 6
    await stored(store, retention_ms="7")
    await noticed(store)
    await configs.catch_up()
    assert configs.topic("t").retention_ms == 7


async def test_node_that_is_no_notification_hides_none(store: EmbeddedSession) -> None:
    await stored(store, retention_ms="5")
    await store.create(f"{znodes.CONFIG_CHANGES}/zzz")
    configs = await begun(store)
    await stored(store, retention_ms="6")
    await noticed(store)
    await configs.catch_up()
    assert configs.topic("t").retention_ms == 6


@pytest.mark.parametrize("name", ["1", znodes.DEFAULT_ENTITY])
async def test_unreadable_broker_configuration_leaves_the_previous_one(
    store: EmbeddedSession, name: str
) -> None:
    path = znodes.config_path("brokers", name)
    await put(store, znodes.encode_config({"message.max.bytes": "2000"}), path)
    configs = await begun(store)
    await put(store, b"", path)
    await noticed(store, znodes.encode_config_change(f"brokers/{name}"))
    await configs.catch_up()
    assert configs.broker.current.message_max_bytes == 2000
    assert (await begun(store)).broker.current.message_max_bytes == 1_048_588


async def test_refused_configuration_is_logged_once(
    store: EmbeddedSession, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(store, cleanup_policy="sift")
    configs = await begun(store)
    for _ in range(3):
        await configs.overrides("t")
    said = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(said) == 1
    assert "sift" in said[0].getMessage()


async def test_configurations_of_many_topics_let_the_loop_run(store: EmbeddedSession) -> None:
    configs = Configs(store, DynamicConfig(BrokerConfig()), 1, passwords())
    loading = asyncio.ensure_future(configs.load_topics(f"t{each}" for each in range(1000)))
    iterations = 0
    while not loading.done():
        await asyncio.sleep(0)
        iterations += 1
    assert iterations > 15
