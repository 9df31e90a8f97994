"""AlterPartitionReassignments (key 45): other replicas for partitions, or as before (KIP-455).

v1 can insist that their number stays (KIP-860). Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT. By
partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
NO_REASSIGNMENT_IN_PROGRESS.
"""

from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ["API", "SERVES", "AlterPartitionReassignmentsHandler", "error_response"]

SERVES = range(2)


class AlterPartitionReassignmentsHandler:
    """Each partition sets out or is refused on its own."""

    def __init__(self, admin: ReplicaAdmin) -> None:
        self._admin = admin

    async def handle(
        self,
        request: AlterPartitionReassignmentsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> AlterPartitionReassignmentsResponse:
        outcomes = await self._admin.alter_reassignments(
            {
                TopicPartition(topic.name, each.partition_index): each.replicas
                for topic in request.topics
                for each in topic.partitions
            },
            allow_factor_change=request.allow_replication_factor_change,
            timeout=request.timeout_ms / 1000,
        )
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        _result(
                            each.partition_index,
                            outcomes[TopicPartition(topic.name, each.partition_index)],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )


def _result(partition: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=partition)
    return ReassignablePartitionResponse(
        partition_index=partition,
        error_code=error.code,
        error_message=error.message,
    )


def error_response(
    request: AlterPartitionReassignmentsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> AlterPartitionReassignmentsResponse:
    """The error as a whole."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=code.text,
        responses=[],
    )
