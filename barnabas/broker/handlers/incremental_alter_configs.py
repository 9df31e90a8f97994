"""IncrementalAlterConfigs (key 44): set, delete, append to and subtract from single keys (KIP-339).

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 is flexible. Resources of type BROKER_LOGGER change log levels.
"""

from barnabas.broker.cluster.config_admin import Alteration, ConfigAdmin
from barnabas.broker.handlers.alter_configs import NEEDS
from barnabas.broker.security.rights import Each, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    API,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "handle"]


def _refused(
    resource: AlterConfigsResource, code: ErrorCode, _version: int
) -> AlterConfigsResourceResponse:
    return _answer((resource, code, code.text))


RIGHTS = Rights(each=Each("resources", NEEDS, _refused, "responses"))


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

    outcomes = yield in_task(admin.one_by_one(request.resources, alter))
    return IncrementalAlterConfigsResponse(responses=(yield from in_steps(_answer, outcomes)))


def _answer(
    outcome: tuple[AlterConfigsResource, ErrorCode, str | None],
) -> AlterConfigsResourceResponse:
    resource, code, message = outcome
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
