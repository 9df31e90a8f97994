"""ListPartitionReassignments (key 46): partitions whose replicas are changing (KIP-455).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from collections import defaultdict
from collections.abc import Sequence

from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

__all__ = ["API", "SERVES", "ListPartitionReassignmentsHandler", "error_response"]

SERVES = range(1)


class ListPartitionReassignmentsHandler:
    """What is not being reassigned, or does not exist, is left out."""

    def __init__(self, admin: ReplicaAdmin) -> None:
        self._admin = admin

    async def handle(
        self,
        request: ListPartitionReassignmentsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> ListPartitionReassignmentsResponse:
        found = await self._admin.list_reassignments(
            _named(request), timeout=request.timeout_ms / 1000
        )
        topics: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
        for at, assignment in found.items():
            topics[at.topic].append(
                OngoingPartitionReassignment(
                    partition_index=at.partition,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                )
            )
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        )


def _named(request: ListPartitionReassignmentsRequest) -> dict[str, Sequence[int]] | None:
    if request.topics is None:
        return None
    return {topic.name: topic.partition_indexes for topic in request.topics}


def error_response(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> ListPartitionReassignmentsResponse:
    """The error as a whole."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=code.text, topics=[])
