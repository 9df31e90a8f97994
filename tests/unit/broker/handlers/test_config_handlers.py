"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources answer as Kafka
does, and what they alter takes effect at once and for good."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.config_admin import MAX_CHARS
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.followed_nodes import KEPT_CHANGES
from barnabas.broker.store.metadata_store import StoreUnavailable, TooLarge
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.stored_passwords import passwords
from tests.unit.broker.handlers.control_plane import ControlPlane, control_plane

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOO_LARGE = (
    ErrorCode.INVALID_CONFIG,
    "The configuration is larger than the metadata store takes.",
)
DYNAMIC_KEY = "log.cleaner.backoff.ms"


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(log_retention_ms="7000") as plane:
        await plane.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                    )
                ]
            )
        )
        yield plane


async def alter(
    plane: ControlPlane,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Any:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    return (await plane.ask(request)).responses[0]


async def replace(
    plane: ControlPlane, kind: int, name: str, *, validate_only: bool = False, **values: str | None
) -> Any:
    configs = [
        legacy.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = legacy.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return (await plane.ask(request)).responses[0]


async def describe(
    plane: ControlPlane, kind: int, name: str, *keys: str, version: int | None = None
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=True,
        include_documentation=version is None,
    )
    return (await plane.ask(request, version)).results[0]


async def value(plane: ControlPlane, kind: int, name: str, key: str) -> str | None:
    (config,) = (await describe(plane, kind, name, key)).configs
    found: str | None = config.value
    return found


async def test_value_has_its_synonyms(plane: ControlPlane) -> None:
    await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    (config,) = (await describe(plane, TOPIC, "t", "retention.ms")).configs
    assert (config.value, config.config_source, config.read_only) == ("5000", 1, False)
    assert config.documentation
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "7000", 4),
    ]
    (early,) = (await describe(plane, TOPIC, "t", "retention.ms", version=1)).configs
    assert (early.value, early.config_source) == ("5000", 1)


async def test_all_keys_are_described_unless_some_are_requested(plane: ControlPlane) -> None:
    everything = await describe(plane, TOPIC, "t")
    assert {config.name for config in everything.configs} == set(TopicConfig.KEYS)
    some = await describe(plane, TOPIC, "t", "segment.ms", "no.such.key")
    assert [config.name for config in some.configs] == ["segment.ms"]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER, " 1", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1_", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "1", 0),
        (BROKER, "", 0),
        (LOGGER, "1", 0),
        (GROUP, "g", 0),
    ],
)
async def test_only_existing_resources_can_be_described(
    plane: ControlPlane, kind: int, name: str, error: int
) -> None:
    result = await describe(plane, kind, name)
    assert result.error_code == error
    assert (result.resource_type, result.resource_name) == (kind, name)


async def test_keys_are_set_and_deleted(plane: ControlPlane) -> None:
    changed: list[tuple[str, int]] = []
    plane.configs.follow_topics(lambda name, config: changed.append((name, config.retention_ms)))
    answer = await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert plane.configs.topic("t").retention_ms == 5000
    await alter(plane, TOPIC, "t", ("retention.ms", DELETE, None))
    assert plane.configs.topic("t").retention_ms == 7000
    assert changed == [("t", 5000), ("t", 7000)]


async def test_lists_are_appended_to_and_subtracted_from(plane: ControlPlane) -> None:
    await alter(plane, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert await value(plane, TOPIC, "t", "cleanup.policy") == "delete,compact"
    await alter(plane, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert await value(plane, TOPIC, "t", "cleanup.policy") == "delete,compact"
    await alter(plane, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert await value(plane, TOPIC, "t", "cleanup.policy") == "compact"


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error"),
    [
        (TOPIC, "t", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("no.such", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("segment.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
        (TOPIC, "u", [("segment.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", [("segment.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", [("segment.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("broker.rack", SET, "r")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("no.such", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [(DYNAMIC_KEY, SET, "-5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "2", [(DYNAMIC_KEY, SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "one", [(DYNAMIC_KEY, SET, "2")], ErrorCode.INVALID_REQUEST),
        (GROUP, "g", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, "", [("no.such", SET, "1")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", [("root", SET, "LOUD")], ErrorCode.INVALID_CONFIG),
        (LOGGER, "1", [("root", APPEND, "INFO")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", [("root", DELETE, None)], ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", [("no.such.logger", SET, "INFO")], ErrorCode.INVALID_CONFIG),
        (METRICS, "m", [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (99, "x", [("k", SET, "v")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_invalid_alterations_are_refused(
    plane: ControlPlane,
    kind: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    error: ErrorCode,
) -> None:
    answer = await alter(plane, kind, name, *changes)
    assert answer.error_code == error
    assert answer.error_message
    assert (answer.resource_type, answer.resource_name) == (kind, name)


async def test_one_invalid_key_refuses_whole_resource(plane: ControlPlane) -> None:
    await alter(plane, TOPIC, "t", ("segment.ms", SET, "1000"), ("retention.ms", SET, "x"))
    assert await value(plane, TOPIC, "t", "segment.ms") == "604800000"


async def test_validate_only_stores_nothing(plane: ControlPlane) -> None:
    change = ("retention.ms", SET, "5")
    assert (await alter(plane, TOPIC, "t", change, validate_only=True)).error_code == 0
    wrong = await alter(plane, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_CONFIG
    assert (await replace(plane, TOPIC, "t", retention_ms="5", validate_only=True)).error_code == 0
    assert await value(plane, TOPIC, "t", "retention.ms") == "7000"


async def test_resource_named_twice_is_refused(plane: ControlPlane) -> None:
    resource = legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    request = legacy.AlterConfigsRequest(resources=[resource, resource], validate_only=False)
    answer = await plane.ask(request)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_alter_configs_replaces_all_overrides(plane: ControlPlane) -> None:
    await replace(plane, TOPIC, "t", retention_ms="5", segment_ms="6")
    await replace(plane, TOPIC, "t", segment_ms="7")
    assert await value(plane, TOPIC, "t", "retention.ms") == "7000"
    assert await value(plane, TOPIC, "t", "segment.ms") == "7"
    null = await replace(plane, TOPIC, "t", segment_ms=None)
    assert null.error_code == ErrorCode.INVALID_REQUEST
    loggers = await replace(plane, LOGGER, "1", root="INFO")
    assert loggers.error_code == ErrorCode.INVALID_REQUEST


async def test_broker_value_precedes_cluster_default(plane: ControlPlane) -> None:
    assert (await alter(plane, BROKER, "", (DYNAMIC_KEY, SET, "3"))).error_code == 0
    assert plane.configs.broker.current.log_cleaner_backoff_ms == 3
    await alter(plane, BROKER, "1", (DYNAMIC_KEY, SET, "4"))
    assert plane.configs.broker.current.log_cleaner_backoff_ms == 4
    (config,) = (await describe(plane, BROKER, "1", DYNAMIC_KEY)).configs
    assert [(each.value, each.source) for each in config.synonyms] == [
        ("4", 2),
        ("3", 3),
        ("15000", 5),
    ]
    (default,) = (await describe(plane, BROKER, "")).configs
    assert (default.name, default.value, default.config_source) == (DYNAMIC_KEY, "3", 3)
    await alter(plane, BROKER, "1", (DYNAMIC_KEY, DELETE, None))
    assert plane.configs.broker.current.log_cleaner_backoff_ms == 3


async def test_broker_default_applies_to_topics(plane: ControlPlane) -> None:
    changed: list[str] = []
    assert plane.configs.topic("t").max_message_bytes == 1_048_588
    plane.configs.follow_topics(lambda name, _: changed.append(name))
    await alter(plane, BROKER, "", ("message.max.bytes", SET, "2000"))
    assert plane.configs.topic("t").max_message_bytes == 2000
    assert changed == ["t"]


async def test_broker_default_may_contradict_topic_value(
    plane: ControlPlane,
) -> None:
    changed: list[str] = []
    await alter(plane, TOPIC, "t", ("max.compaction.lag.ms", SET, "1000"))
    plane.configs.topic("u")
    plane.configs.follow_topics(lambda name, _: changed.append(name))
    key = "log.cleaner.min.compaction.lag.ms"
    assert (await alter(plane, BROKER, "1", (key, SET, "5000"))).error_code == 0
    # Every topic is told, and a broker that starts can read it.
    assert sorted(changed) == ["t", "u"]
    config = plane.configs.topic("t")
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (5000, 1000)
    assert await value(plane, TOPIC, "t", "min.compaction.lag.ms") == "5000"
    # The next alteration of the topic has to correct it.
    told = await alter(plane, TOPIC, "t", ("retention.ms", SET, "1"))
    assert told.error_code == ErrorCode.INVALID_CONFIG
    mended = await alter(plane, TOPIC, "t", ("min.compaction.lag.ms", SET, "0"))
    assert mended.error_code == 0


async def test_log_levels_change_at_once_and_are_not_stored(plane: ControlPlane) -> None:
    logger = logging.getLogger("barnabas.test")
    assert (await alter(plane, LOGGER, "1", (logger.name, SET, "DEBUG"))).error_code == 0
    assert logger.level == logging.DEBUG
    assert await value(plane, LOGGER, "1", logger.name) == "DEBUG"
    await alter(plane, LOGGER, "1", (logger.name, DELETE, None))
    assert logger.level == logging.NOTSET


async def test_other_broker_applies_alterations(plane: ControlPlane) -> None:
    session = plane.cluster.store.session()
    other = Configs(session, DynamicConfig(plane.configs.broker.static), 2, passwords())
    news = asyncio.Event()
    await other.start(news.set)
    await other.load_topics(["t"])
    await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    await alter(plane, BROKER, "", (DYNAMIC_KEY, SET, "3"))
    await asyncio.wait_for(news.wait(), 5)
    await other.catch_up()
    assert other.topic("t").retention_ms == 5000
    assert other.broker.current.log_cleaner_backoff_ms == 3
    other.stop()


async def test_old_notifications_are_deleted(plane: ControlPlane) -> None:
    for round_ in range(KEPT_CHANGES + 20):
        await alter(plane, TOPIC, "t", ("retention.ms", SET, str(round_)))
    await plane.configs.catch_up()
    session = plane.cluster.store.session()
    assert len(await session.children(znodes.CONFIG_CHANGES)) == KEPT_CHANGES


@pytest.mark.parametrize("altered_before", [True, False])
async def test_broker_that_missed_notifications_reads_all_configs(
    plane: ControlPlane, altered_before: bool
) -> None:
    session = plane.cluster.store.session()
    away = Configs(session, DynamicConfig(plane.configs.broker.static), 2, passwords())
    if altered_before:
        await alter(plane, TOPIC, "t", ("retention.ms", SET, "1"))
    await away.start(lambda: None)
    await away.load_topics(["t"])
    await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    await alter(plane, BROKER, "", (DYNAMIC_KEY, SET, "3"))
    for round_ in range(KEPT_CHANGES + 5):
        told = await alter(plane, BROKER, "1", (DYNAMIC_KEY, SET, str(round_ + 4)))
        assert told.error_code == 0
    await plane.configs.catch_up()
    assert len(await session.children(znodes.CONFIG_CHANGES)) == KEPT_CHANGES
    await away.catch_up()
    assert away.topic("t").retention_ms == 5000
    assert away.broker.current.log_cleaner_backoff_ms == 3
    away.stop()


async def test_change_that_failed_to_load_is_loaded_next_time(plane: ControlPlane) -> None:
    session = plane.cluster.store.session()
    other = Configs(session, DynamicConfig(plane.configs.broker.static), 2, passwords())
    await other.start(lambda: None)
    await other.load_topics(["t"])
    await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    get, session.get = session.get, lost  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await other.catch_up()
    session.get = get  # type: ignore[method-assign]
    await other.catch_up()
    assert other.topic("t").retention_ms == 5000
    other.stop()


async def lost(_path: str) -> NoReturn:
    raise StoreUnavailable


async def test_alteration_without_store_can_be_retried(
    plane: ControlPlane,
) -> None:
    session = plane.configs._store
    get, session.get = session.get, lost  # type: ignore[method-assign]
    answer = await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    session.get = get  # type: ignore[method-assign]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_alteration_refused_by_store_is_refused(plane: ControlPlane) -> None:
    session = plane.configs._store

    async def multi(_ops: object) -> NoReturn:
        raise TooLarge

    before, session.multi = session.multi, multi  # type: ignore[method-assign, assignment]
    answer = await alter(plane, TOPIC, "t", ("retention.ms", SET, "5000"))
    session.multi = before  # type: ignore[method-assign]
    assert answer.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("kind", [TOPIC, BROKER, GROUP])
@pytest.mark.parametrize("validate_only", [False, True])
async def test_configuration_that_is_too_large_is_refused(
    plane: ControlPlane, kind: int, validate_only: bool
) -> None:
    name = {TOPIC: "t", BROKER: "1", GROUP: "g"}[kind]
    large = [(f"x{number}", SET, "1" * 30_000) for number in range(MAX_CHARS // 30_000 + 1)]
    answer = await alter(plane, kind, name, *large, validate_only=validate_only)
    assert (answer.error_code, answer.error_message) == TOO_LARGE


async def test_configuration_that_grows_too_large_is_refused(plane: ControlPlane) -> None:
    key = "leader.replication.throttled.replicas"
    answers = []
    for part in range(MAX_CHARS // 31_500 + 1):
        items = ",".join(f"{part:02}{each:04}:1" for each in range(3_500))
        answers.append(await alter(plane, TOPIC, "t", (key, APPEND, items)))
    assert not answers[-2].error_code
    assert (answers[-1].error_code, answers[-1].error_message) == TOO_LARGE


async def test_new_topic_with_a_configuration_that_is_too_large_is_refused(
    plane: ControlPlane,
) -> None:
    large = [
        CreatableTopicConfig(name=f"x{number}", value="1" * 30_000)
        for number in range(MAX_CHARS // 30_000 + 1)
    ]
    topic = CreatableTopic(
        name="u", num_partitions=1, replication_factor=1, assignments=[], configs=large
    )
    (answer,) = (await plane.ask(CreateTopicsRequest(topics=[topic]))).topics
    assert (answer.error_code, answer.error_message) == TOO_LARGE


async def test_resources_are_listed_by_type(plane: ControlPlane) -> None:
    early = await plane.ask(ListConfigResourcesRequest(), 0)
    assert (early.error_code, early.config_resources) == (0, [])
    answer = await plane.ask(ListConfigResourcesRequest())
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert found == [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")]
    topics = await plane.ask(ListConfigResourcesRequest(resource_types=[TOPIC]))
    assert [each.resource_name for each in topics.config_resources] == ["t"]
    unknown = await plane.ask(ListConfigResourcesRequest(resource_types=[3]))
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
