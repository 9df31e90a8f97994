"""DeleteGroups (key 42): empty groups go, with their offsets (KIP-229).

Errors by group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators.
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import (
    API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

__all__ = ["API", "SERVES", "DeleteGroupsHandler", "error_response"]

SERVES = range(3)


class DeleteGroupsHandler:
    """Each group is deleted or refused on its own."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def handle(
        self,
        request: DeleteGroupsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> DeleteGroupsResponse:
        names = dict.fromkeys(request.groups_names)
        return DeleteGroupsResponse(results=[await self._delete(each) for each in names])

    async def _delete(self, group_id: str) -> DeletableGroupResult:
        try:
            await self._groups.delete(group_id)
        except KafkaError as error:
            return DeletableGroupResult(group_id=group_id, error_code=error.code)
        return DeletableGroupResult(group_id=group_id)


def error_response(
    request: DeleteGroupsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> DeleteGroupsResponse:
    """The error for every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=each, error_code=code) for each in request.groups_names
        ]
    )
