"""ListPartitionReassignments (key 46): the ongoing reassignments (KIP-455).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.controller.rules.reassignment import Assignment
from barnabas.broker.security.rights import CLUSTER, DESCRIBE, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "handle"]


def _refused(
    topic: ListPartitionReassignmentsTopics, _code: ErrorCode, _version: int
) -> Steps[Any]:
    """Name the partitions without replicas, as Kafka does: the error stands above them."""
    named = yield from in_steps(_nothing, topic.partition_indexes)
    return OngoingTopicReassignment(name=topic.name, partitions=named)


RIGHTS = Rights(whole=(Need(DESCRIBE, CLUSTER),), each=Each("topics", (), _refused, "topics"))


def handle(
    admin: ReplicaAdmin,
    request: ListPartitionReassignmentsRequest,
    _context: RequestContext,
) -> Steps[ListPartitionReassignmentsResponse]:
    """List ongoing reassignments; a partition without one, or that does not exist, is left out."""
    named = None
    if request.topics is not None:
        named = {}
        for topic in request.topics:
            named[topic.name] = frozenset(topic.partition_indexes)
            yield None
    listed = admin.list_reassignments(named, timeout=request.timeout_ms / 1000)
    found: Mapping[TopicPartition, Assignment] = yield in_task(listed)
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
        yield None
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def _nothing(index: int) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
    )
