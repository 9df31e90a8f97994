"""ElectLeaders (key 43): elect the preferred leaders, or any replica (KIP-183, KIP-460).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST. By partition:
UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.broker.controller.replica_admin import Outcomes, ReplicaAdmin
from barnabas.broker.security.rights import ALTER, CLUSTER, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.elect_leaders import (
    API,
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "handle"]


def _refused(topic: TopicPartitions, code: ErrorCode, _version: int) -> Steps[Any]:
    error = KafkaError(code)
    return _topic_result(topic, lambda _: error)


RIGHTS = Rights(
    whole=(Need(ALTER, CLUSTER),),
    each=Each("topic_partitions", (), _refused, "replica_election_results"),
)


def handle(
    admin: ReplicaAdmin,
    request: ElectLeadersRequest,
    _context: RequestContext,
) -> Steps[ElectLeadersResponse]:
    """Hold each election on its own; each succeeds or fails alone."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    named: list[TopicPartition] | None = None
    if request.topic_partitions is not None:
        named = []
        for topic in request.topic_partitions:
            yield None
            named += yield from in_steps(partial(TopicPartition, topic.topic), topic.partitions)
    elected = admin.elect_leaders(
        named, unclean=request.election_type == UNCLEAN, timeout=request.timeout_ms / 1000
    )
    outcomes: Outcomes = yield in_task(elected)
    if named is None:
        return (yield from _all(outcomes))
    topics = []
    for topic in request.topic_partitions or ():
        yield None
        topics.append((yield from _topic_result(topic, outcomes.get)))
    return ElectLeadersResponse(replica_election_results=topics)


def _topic_result(
    topic: TopicPartitions, outcome: Callable[[TopicPartition], KafkaError | None]
) -> Steps[ReplicaElectionResult]:
    results = []
    for index in topic.partitions:
        results.append(_result(index, outcome(TopicPartition(topic.topic, index))))
        yield None
    return ReplicaElectionResult(topic=topic.topic, partition_result=results)


def _all(outcomes: Outcomes) -> Steps[ElectLeadersResponse]:
    """Return every topic, with the partitions that needed an election."""
    topics: dict[str, list[PartitionResult]] = defaultdict(list)
    for at, error in outcomes.items():
        yield None
        needed = topics[at.topic]
        if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            needed.append(_result(at.partition, error))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=results)
            for name, results in topics.items()
        ]
    )


def _result(partition: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=partition)
    return PartitionResult(
        partition_id=partition,
        error_code=error.code,
        error_message=error.message or error.code.text,
    )
