"""One broker without disks or sockets, and a way to ask its handlers as a client would."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from types import ModuleType
from typing import Any

from barnabas.broker.controller.topic_creator import InternalTopic, TopicCreator
from barnabas.broker.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_config_resources,
    metadata,
)
from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.server.context import ANONYMOUS, RequestContext
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import KafkaError
from tests.unit.broker.controller.harness import FakeBroker, FakeCluster, open_cluster

BROKER_ID = 1


@dataclass
class ControlPlane:
    """`ask` sends a request through the codec to its handler and back."""

    cluster: FakeCluster
    broker: FakeBroker
    configs: Configs
    handlers: dict[type, tuple[ModuleType, Callable[..., Any]]]
    internal_replication_factor: int = 1
    deletion_enabled: bool = True
    creation_enabled: bool = True

    async def ask(
        self, request: Any, version: int | None = None, listener: str = "PLAINTEXT"
    ) -> Any:
        """By default in the newest version that is served."""
        module, handle = self.handlers[type(request)]
        if version is None:
            version = module.SERVES[-1]
        assert version in module.SERVES
        request = decode(type(request), version, encode(request, version))
        context = RequestContext(
            module.API.key, version, 0, "test", ANONYMOUS, listener, "127.0.0.1", 1, 0
        )
        try:
            answer = handle(request, context)
            if isawaitable(answer):
                answer = await answer
        except KafkaError as error:
            answer = module.error_response(request, error.code, version)
        return decode(module.API.response, version, encode(answer, version))


@asynccontextmanager
async def control_plane(**properties: str) -> AsyncIterator[ControlPlane]:
    """Configuration keys are written with underscores."""
    cluster = await open_cluster()
    texts = {key.replace("_", "."): value for key, value in properties.items()}
    dynamic = DynamicConfig(BrokerConfig.from_properties({"broker.id": "1", **texts}))
    broker = await cluster.start(BROKER_ID)
    cache, controller, loggers = broker.cache, broker.controller, LoggerLevels()
    configs = Configs(broker.session, dynamic, BROKER_ID)
    await configs.start(lambda: None)
    admin = ConfigAdmin(configs, cache, BROKER_ID, loggers)
    cluster.check_configs = admin.check_new_topic
    plane = ControlPlane(cluster, broker, configs, {})

    def internal() -> InternalTopic:
        return InternalTopic(5, plane.internal_replication_factor, {"cleanup.policy": "compact"})

    creator = TopicCreator(controller, cache, {CONSUMER_OFFSETS: internal})
    for module, handler in (
        (alter_configs, alter_configs.AlterConfigsHandler(admin)),
        (create_partitions, create_partitions.CreatePartitionsHandler(controller)),
        (create_topics, create_topics.CreateTopicsHandler(controller, dynamic)),
        (
            delete_topics,
            delete_topics.DeleteTopicsHandler(controller, cache, lambda: plane.deletion_enabled),
        ),
        (describe_cluster, describe_cluster.DescribeClusterHandler(cache)),
        (
            describe_configs,
            describe_configs.DescribeConfigsHandler(configs, cache, BROKER_ID, loggers),
        ),
        (
            describe_topic_partitions,
            describe_topic_partitions.DescribeTopicPartitionsHandler(cache, lambda: 2000),
        ),
        (
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsHandler(admin),
        ),
        (
            list_config_resources,
            list_config_resources.ListConfigResourcesHandler(configs, cache),
        ),
        (
            metadata,
            metadata.MetadataHandler(
                cache, auto_create=lambda: plane.creation_enabled, create=creator.create
            ),
        ),
    ):
        plane.handlers[module.API.request] = (module, handler.handle)
    yield plane
    await cluster.close()
    assert not cluster.fatal
