"""ListConfigResources (key 74): for what there can be configurations (KIP-1142).

v0 was ListClientMetricsResources and lists those alone. v1 asks for types; none means all.
UNSUPPORTED_VERSION for a type that cannot be listed.
"""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_config_resources import (
    API,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

__all__ = ["API", "SERVES", "ListConfigResourcesHandler", "error_response"]

SERVES = range(2)


class ListConfigResourcesHandler:
    """Topics and brokers as they are known, groups for which something is stored."""

    def __init__(self, configs: Configs, cache: MetadataCache) -> None:
        self._configs = configs
        self._cache = cache

    async def handle(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        if context.api_version == 0:
            wanted = {int(ResourceType.CLIENT_METRICS)}
        else:
            wanted = set(request.resource_types) or set(ResourceType)
        if not wanted <= set(ResourceType):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in sorted(wanted)
                for name in await self._names(kind)
            ]
        )

    async def _names(self, kind: int) -> list[str]:
        match kind:
            case ResourceType.TOPIC:
                return list(self._cache.topics)
            case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
                return [str(broker_id) for broker_id in self._cache.brokers]
            case ResourceType.GROUP:
                return await self._configs.names("groups")
            case _:
                return []


def error_response(
    request: ListConfigResourcesRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> ListConfigResourcesResponse:
    """No resources, and why."""
    return ListConfigResourcesResponse(error_code=code, config_resources=[])
