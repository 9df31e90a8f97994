"""AlterConfigs (key 33): replace all overrides of a resource (see IncrementalAlterConfigs).

Errors by resource: INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION. v1 has a throttle time, v2 is flexible.
"""

from collections.abc import Awaitable, Callable, Sequence

from barnabas.broker.cluster.config_admin import ConfigAdmin, R, Resource
from barnabas.broker.handlers.describe_configs import is_of_cluster, is_of_group, is_of_topic
from barnabas.broker.security.rights import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    API,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "handle"]


def _refused(resource: Resource, code: ErrorCode, _version: int) -> AlterConfigsResourceResponse:
    return _answer((resource, code, code.text))


RIGHTS = Rights(
    each=Each(
        "resources",
        (
            Need(ALTER_CONFIGS, CLUSTER, when=is_of_cluster),
            Need(ALTER_CONFIGS, TOPIC, "resource_name", when=is_of_topic),
            Need(ALTER_CONFIGS, GROUP, "resource_name", when=is_of_group),
        ),
        _refused,
        "responses",
    )
)
"""The rights of a change, by the type of its resource; IncrementalAlterConfigs needs the same."""


def handle(
    admin: ConfigAdmin,
    request: AlterConfigsRequest,
    _context: RequestContext,
) -> Steps[AlterConfigsResponse]:
    """Change each resource on its own; each succeeds or fails alone."""

    async def alter(resource: AlterConfigsResource) -> None:
        await admin.replace(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) async for config in admin.slicer.each(resource.configs)],
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(responses=(yield from altered(admin, request.resources, alter)))


def altered(
    admin: ConfigAdmin, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> Steps[list[AlterConfigsResourceResponse]]:
    """Change each resource on its own, and return the responses."""
    outcomes = yield in_task(admin.one_by_one(resources, alter))
    return (yield from in_steps(_answer, outcomes))


def _answer(
    outcome: tuple[Resource, ErrorCode, str | None],
) -> AlterConfigsResourceResponse:
    resource, code, message = outcome
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
