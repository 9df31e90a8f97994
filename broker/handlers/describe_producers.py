"""DescribeProducers (key 61): the producers that a replica remembers (KIP-664)."""

from barnabas.broker.metadata.topic_names import check_name
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_producers import (
    API,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.storage.producer_entry import ProducerEntry

__all__ = ["API", "SERVES", "DescribeProducersHandler", "error_response"]

SERVES = range(1)
_NO_OFFSET = -1


class DescribeProducersHandler:
    """Answers for every replica on this broker, as tools ask one broker for all that it has."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(
        self,
        request: DescribeProducersRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        self._describe(topic.name, each) for each in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _describe(self, topic: str, index: int) -> PartitionResponse:
        try:
            check_name(topic)
            partition = self._replicas.partition(topic, index)
        except KafkaError as error:
            return _refused(index, error.code)
        # At one blow: the log of a follower may be cut in another thread.
        producers = list(partition.log.producers)
        return PartitionResponse(
            partition_index=index, active_producers=[_state(each) for each in producers]
        )


def _state(entry: ProducerEntry) -> ProducerState:
    first = entry.current_txn_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NO_OFFSET if first is None else first,
    )


def _refused(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code, error_message=code.text, active_producers=[]
    )


def error_response(
    request: DescribeProducersRequest, code: ErrorCode, _version: int
) -> DescribeProducersResponse:
    """The error for every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_refused(each, code) for each in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )
