"""DeleteGroups (key 42): delete empty groups with their offsets (KIP-229).

Errors by group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators.
"""

import asyncio

from barnabas.broker.security.rights import DELETE, GROUP, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import (
    API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    each=Each(
        "groups_names",
        (Need(DELETE, GROUP),),
        lambda group_id, code, _: _result(group_id, code),
        "results",
    )
)


def handle(
    groups: GroupCoordinator,
    request: DeleteGroupsRequest,
    _context: RequestContext,
) -> Steps[DeleteGroupsResponse]:
    """Delete or refuse each group on its own."""
    begun: dict[str, ErrorCode | asyncio.Future[None]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        yield None
        try:
            begun[group_id] = groups.delete(group_id) or ErrorCode.NONE
        except KafkaError as error:
            begun[group_id] = error.code
    results = []
    for group_id, deletion in begun.items():
        yield None
        code = ErrorCode.NONE
        try:
            code = deletion if isinstance(deletion, ErrorCode) else (yield deletion) or code
        except KafkaError as error:
            code = error.code
        results.append(_result(group_id, code))
    return DeleteGroupsResponse(results=results)


def _result(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
