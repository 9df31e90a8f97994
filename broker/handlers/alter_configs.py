"""AlterConfigs (key 33): replace all that is set on a resource. Superseded by incremental changes.

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 has a throttle time, v2 is flexible.
"""

from barnabas.broker.metadata.config_admin import ConfigAdmin, one_by_one
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    API,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["API", "SERVES", "AlterConfigsHandler", "error_response"]

SERVES = range(3)


class AlterConfigsHandler:
    """Each resource succeeds or fails on its own."""

    def __init__(self, admin: ConfigAdmin) -> None:
        self._admin = admin

    async def handle(
        self,
        request: AlterConfigsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> AlterConfigsResponse:
        async def alter(resource: AlterConfigsResource) -> None:
            await self._admin.replace(
                resource.resource_type,
                resource.resource_name,
                [(config.name, config.value) for config in resource.configs],
                validate_only=request.validate_only,
            )

        outcomes = await one_by_one(request.resources, alter)
        return AlterConfigsResponse(responses=[_answer(*outcome) for outcome in outcomes])


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(
    request: AlterConfigsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> AlterConfigsResponse:
    """The error for every resource."""
    return AlterConfigsResponse(
        responses=[_answer(resource, code, code.text) for resource in request.resources]
    )
