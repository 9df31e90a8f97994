"""ElectLeaders (key 43): the preferred replicas lead again, or any that is left (KIP-183, KIP-460).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST. By partition:
UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from collections import defaultdict
from collections.abc import Callable

from barnabas.broker.controller.replica_admin import Outcomes, ReplicaAdmin
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.elect_leaders import (
    API,
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

__all__ = ["API", "SERVES", "ElectLeadersHandler", "error_response"]

SERVES = range(3)


class ElectLeadersHandler:
    """Each election succeeds or fails on its own."""

    def __init__(self, admin: ReplicaAdmin) -> None:
        self._admin = admin

    async def handle(
        self,
        request: ElectLeadersRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> ElectLeadersResponse:
        if request.election_type not in (PREFERRED, UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        outcomes = await self._admin.elect_leaders(
            _named(request),
            unclean=request.election_type == UNCLEAN,
            timeout=request.timeout_ms / 1000,
        )
        if request.topic_partitions is None:
            return _all(outcomes)
        return ElectLeadersResponse(replica_election_results=_named_results(request, outcomes.get))


def _named(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, index)
        for topic in request.topic_partitions
        for index in topic.partitions
    ]


def _named_results(
    request: ElectLeadersRequest, outcome: Callable[[TopicPartition], KafkaError | None]
) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                _result(index, outcome(TopicPartition(topic.topic, index)))
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]


def _all(outcomes: Outcomes) -> ElectLeadersResponse:
    """Every topic, and of its partitions those that needed an election."""
    topics: dict[str, list[PartitionResult]] = defaultdict(list)
    for at, error in outcomes.items():
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


def error_response(
    request: ElectLeadersRequest, code: ErrorCode, version: int
) -> ElectLeadersResponse:
    """The error for every partition that is named and, from v1 on, for the whole."""
    response = ElectLeadersResponse(
        replica_election_results=_named_results(request, lambda _: KafkaError(code))
    )
    if version >= 1:
        response.error_code = code
    return response
