"""DeleteGroups (key 42): delete empty groups with their offsets (KIP-229).

Errors by group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

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


Begun = dict[str, ErrorCode | asyncio.Future[None]]
"""The deletions by group, or their outcome."""


def handle(
    groups: GroupCoordinator,
    request: DeleteGroupsRequest,
    _context: RequestContext,
) -> Steps[DeleteGroupsResponse | Coroutine[Any, Any, Steps[DeleteGroupsResponse]]]:
    """Delete or refuse each group on its own."""
    begun: Begun = {}
    for group_id in dict.fromkeys(request.groups_names):
        yield None
        try:
            begun[group_id] = groups.delete(group_id) or ErrorCode.NONE
        except KafkaError as error:
            begun[group_id] = error.code
    if any(isinstance(each, asyncio.Future) for each in begun.values()):
        return _once_deleted(begun)
    return (yield from _answer(begun))


async def _once_deleted(begun: Begun) -> Steps[DeleteGroupsResponse]:
    for each in begun.values():
        if isinstance(each, asyncio.Future):
            with suppress(KafkaError):
                await each
    return _answer(begun)


def _answer(begun: Begun) -> Steps[DeleteGroupsResponse]:
    results = []
    for group_id, code in begun.items():
        yield None
        results.append(_result(group_id, _outcome(code)))
    return DeleteGroupsResponse(results=results)


def _outcome(deleted: ErrorCode | asyncio.Future[None]) -> ErrorCode:
    if isinstance(deleted, ErrorCode):
        return deleted
    try:
        deleted.result()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _result(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
