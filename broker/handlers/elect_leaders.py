"""ElectLeaders (key 43): the preferred replicas lead again, or any that is left (KIP-183, KIP-460).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST. By partition:
UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from collections import defaultdict

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
        # Who asks for all is not told of those that have the leader they should have.
        left_out = ErrorCode.ELECTION_NOT_NEEDED if request.topic_partitions is None else None
        return _response(outcomes, left_out)


def _named(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, index)
        for topic in request.topic_partitions
        for index in topic.partitions
    ]


def _response(outcomes: Outcomes, left_out: ErrorCode | None = None) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = defaultdict(list)
    for at, error in outcomes.items():
        of_topic = topics[at.topic]
        if error is None or error.code is not left_out:
            of_topic.append(_result(at.partition, error))
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
    """The error as a whole; before v1, which has no room for it, for every partition named."""
    if version >= 1:
        return ElectLeadersResponse(error_code=code, replica_election_results=[])
    return _response(dict.fromkeys(_named(request) or [], KafkaError(code)))
