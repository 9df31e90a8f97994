"""IncrementalAlterConfigs (key 44): set, delete, append to and subtract from single keys (KIP-339).

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 is flexible. Resources of type BROKER_LOGGER change log levels.
"""

from barnabas.broker.cluster.config_admin import Alteration, ConfigAdmin
from barnabas.broker.handlers.alter_configs import RIGHTS, altered
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.messages.incremental_alter_configs import (
    API,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]


def handle(
    admin: ConfigAdmin,
    request: IncrementalAlterConfigsRequest,
    _context: RequestContext,
) -> Steps[IncrementalAlterConfigsResponse]:
    """Change each resource on its own, with all of its keys."""

    async def alter(resource: AlterConfigsResource) -> None:
        await admin.alter(
            resource.resource_type,
            resource.resource_name,
            [
                Alteration(config.name, config.config_operation, config.value)
                async for config in admin.slicer.each(resource.configs)
            ],
            validate_only=request.validate_only,
        )

    responses = yield from altered(admin, request.resources, alter)
    return IncrementalAlterConfigsResponse(responses=responses)
