"""AlterConfigs (key 33): replace all that is set on a resource. Superseded by incremental changes.

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 has a throttle time, v2 is flexible.
"""

from collections import Counter

from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
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
        asked_for = Counter((each.resource_type, each.resource_name) for each in request.resources)
        responses = []
        for resource in request.resources:
            try:
                if asked_for[resource.resource_type, resource.resource_name] > 1:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                    )
                await self._admin.replace(
                    resource.resource_type,
                    resource.resource_name,
                    [(config.name, config.value) for config in resource.configs],
                    validate_only=request.validate_only,
                )
            except KafkaError as error:
                responses.append(_answer(resource, error.code, error.message))
            else:
                responses.append(_answer(resource, ErrorCode.NONE, None))
        return AlterConfigsResponse(responses=responses)


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
