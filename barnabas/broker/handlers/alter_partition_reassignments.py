"""AlterPartitionReassignments (key 45): start or cancel reassignments of partitions (KIP-455).

v1 can forbid a change of the replication factor (KIP-860). Errors: NOT_CONTROLLER,
REQUEST_TIMED_OUT. By partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS.
"""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.security.rights import ALTER, CLUSTER, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    API,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "handle"]


def _refused(topic: ReassignableTopic, code: ErrorCode, _version: int) -> Steps[Any]:
    error = KafkaError(code, code.text)
    return _topic_answer(topic, lambda _: error)


RIGHTS = Rights(whole=(Need(ALTER, CLUSTER),), each=Each("topics", (), _refused, "responses"))


def handle(
    admin: ReplicaAdmin,
    request: AlterPartitionReassignmentsRequest,
    _context: RequestContext,
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Start or refuse the reassignment of each partition on its own."""
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    for topic in request.topics:
        yield None
        for each in topic.partitions:
            wanted[TopicPartition(topic.name, each.partition_index)] = each.replicas
            yield None
    altered = admin.alter_reassignments(
        wanted,
        allow_factor_change=request.allow_replication_factor_change,
        timeout=request.timeout_ms / 1000,
    )
    outcomes = yield in_task(altered)
    topics = []
    for topic in request.topics:
        yield None
        topics.append((yield from _topic_answer(topic, outcomes.__getitem__)))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=topics
    )


def _topic_answer(
    topic: ReassignableTopic, outcome: Callable[[TopicPartition], KafkaError | None]
) -> Steps[ReassignableTopicResponse]:
    results = []
    for each in topic.partitions:
        error = outcome(TopicPartition(topic.name, each.partition_index))
        results.append(_result(each.partition_index, error))
        yield None
    return ReassignableTopicResponse(name=topic.name, partitions=results)


def _result(partition: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=partition)
    return ReassignablePartitionResponse(
        partition_index=partition,
        error_code=error.code,
        error_message=error.message,
    )
