"""ListConfigResources (key 74): the resources that can have configurations (KIP-1142).

v0 was ListClientMetricsResources and lists those alone. v1 has a list of types; an empty list means
all. UNSUPPORTED_VERSION for a type that cannot be listed.
"""

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.security.rights import CLUSTER, DESCRIBE_CONFIGS, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_config_resources import (
    API,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(DESCRIBE_CONFIGS, CLUSTER),))


def handle(
    configs: Configs,
    cache: MetadataCache,
    request: ListConfigResourcesRequest,
    context: RequestContext,
) -> Steps[ListConfigResourcesResponse]:
    """List the known topics and brokers, and the groups that have a stored configuration."""
    if context.api_version == 0:
        wanted = {int(ConfigResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or set(ConfigResourceType)
    if not wanted <= set(ConfigResourceType):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    found = []
    for kind in sorted(wanted):
        for name in (yield from _names(configs, cache, kind)):
            found.append(ConfigResource(resource_name=name, resource_type=kind))
            yield None
    return ListConfigResourcesResponse(config_resources=found)


def _names(configs: Configs, cache: MetadataCache, kind: int) -> Steps[list[str]]:
    match kind:
        case ConfigResourceType.TOPIC:
            return list(cache.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in cache.brokers]
        case ConfigResourceType.GROUP:
            names: list[str] = yield in_task(configs.names("groups"))
            return names
        case _:
            return []
