"""IncrementalAlterConfigs (key 44): set, delete, append to and subtract from single keys (KIP-339).

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 is flexible. Resources of type BROKER_LOGGER change log levels.
"""

from barnabas.broker.metadata.config_admin import Alteration, ConfigAdmin, one_by_one
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    API,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["API", "SERVES", "IncrementalAlterConfigsHandler", "error_response"]

SERVES = range(2)


class IncrementalAlterConfigsHandler:
    """Each resource succeeds or fails on its own, with all of its keys."""

    def __init__(self, admin: ConfigAdmin) -> None:
        self._admin = admin

    async def handle(
        self,
        request: IncrementalAlterConfigsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> IncrementalAlterConfigsResponse:
        async def alter(resource: AlterConfigsResource) -> None:
            await self._admin.alter(
                resource.resource_type,
                resource.resource_name,
                [
                    Alteration(config.name, config.config_operation, config.value)
                    for config in resource.configs
                ],
                validate_only=request.validate_only,
            )

        outcomes = await one_by_one(request.resources, alter)
        return IncrementalAlterConfigsResponse(
            responses=[_answer(*outcome) for outcome in outcomes]
        )


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
    request: IncrementalAlterConfigsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[_answer(resource, code, code.text) for resource in request.resources]
    )
