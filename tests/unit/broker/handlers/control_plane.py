"""One broker without disks or sockets, whose handlers a test calls like a client."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import isawaitable
from types import ModuleType
from typing import Any

from barnabas.broker.cluster.config_admin import ConfigAdmin
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.internal_topics import InternalTopic
from barnabas.broker.cluster.stored_passwords import StoredPasswords
from barnabas.broker.cluster.topic_creator import TopicCreator
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    update_features,
)
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.server.context import Asker, RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import KafkaError
from barnabas.security.principal import ANONYMOUS
from tests.support.rows import row_of
from tests.support.steps import all_taken
from tests.unit.broker.controller.harness import FakeBroker, FakeCluster, open_cluster

BROKER_ID = 1


@dataclass
class ControlPlane:
    """`ask` sends a request through the codec to its handler and back."""

    cluster: FakeCluster
    broker: FakeBroker
    configs: Configs
    routes: dict[type, Route]
    internal_replication_factor: int = 1
    deletion_enabled: bool = True
    creation_enabled: bool = True
    asker: Asker | None = None

    async def ask(
        self, request: Any, version: int | None = None, listener: str = "PLAINTEXT"
    ) -> Any:
        """Send the request, by default in the newest served version."""
        route = self.routes[type(request)]
        if version is None:
            version = route.serves[-1]
        assert version in route.serves
        request = decode(type(request), version, encode(request, version))
        context = RequestContext(
            *(route.api.key, version, 0, "test", ANONYMOUS, listener, "127.0.0.1", 1, 0),
            asker=self.asker,
        )
        try:
            answer = all_taken(route.handle(request, context))
            if isawaitable(answer):
                answer = await answer
        except KafkaError as error:
            answer = all_taken(route.refuse(request, error.code, version))
        return decode(route.api.response, version, encode(answer, version))

    def serve(self, module: ModuleType, *collaborators: Any) -> None:
        """Serve an API in the versions of the table."""
        row = row_of(module)._replace(collaborators=lambda _: collaborators)
        parts: Any = None
        self.routes[row.api.request] = row.route(parts, row.versions, None)


@asynccontextmanager
async def control_plane(
    slicer: Slicer | None = None, **properties: str
) -> AsyncIterator[ControlPlane]:
    """Configuration keys are written with underscores."""
    slicer = slicer or Slicer(time.monotonic)
    cluster = await open_cluster(slicer=slicer)
    texts = {key.replace("_", "."): value for key, value in properties.items()}
    dynamic = DynamicConfig(BrokerConfig.from_properties({"broker.id": "1", **texts}))
    broker = await cluster.start(BROKER_ID)
    cache, controller, loggers = broker.cache, broker.controller, LoggerLevels()
    passwords = StoredPasswords(dynamic.static, InlineOffload())
    configs = Configs(broker.session, dynamic, BROKER_ID, passwords)
    await configs.start(lambda: None)
    admin = ConfigAdmin(configs, cache, BROKER_ID, loggers, slicer)
    cluster.check_configs = admin.check_new_topic
    plane = ControlPlane(cluster, broker, configs, {})

    def internal() -> InternalTopic:
        return InternalTopic(5, plane.internal_replication_factor, {"cleanup.policy": "compact"})

    creator = TopicCreator(controller, cache, {CONSUMER_OFFSETS: internal}, slicer)
    replica_admin = ReplicaAdmin(controller)
    plane.serve(alter_configs, admin)
    plane.serve(alter_partition_reassignments, replica_admin)
    plane.serve(elect_leaders, replica_admin)
    plane.serve(list_partition_reassignments, replica_admin)
    plane.serve(create_partitions, controller, cache)
    plane.serve(create_topics, controller, dynamic)
    plane.serve(delete_topics, controller, cache, lambda: plane.deletion_enabled)
    plane.serve(describe_cluster, cache)
    plane.serve(describe_configs, configs, cache, BROKER_ID, loggers)
    plane.serve(describe_topic_partitions, cache, lambda: 2000)
    plane.serve(incremental_alter_configs, admin)
    plane.serve(update_features, Features(broker.session))
    plane.serve(list_config_resources, configs, cache)
    plane.serve(metadata, cache, lambda: plane.creation_enabled, creator.create)
    yield plane
    await cluster.close()
    assert not cluster.fatal
