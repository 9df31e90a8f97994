"""DeleteRecords (key 21): move the start of logs forward (KIP-107). v2 is flexible.

Refused for topics that are only compacted (POLICY_VIOLATION), whose readers expect the last value
of every key, and for internal topics.
"""

from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import (
    API,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

__all__ = ["API", "SERVES", "DeleteRecordsHandler", "error_response"]

SERVES = range(3)


class DeleteRecordsHandler:
    """Deletes on the logs this broker leads."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(
        self, request: DeleteRecordsRequest, _context: RequestContext
    ) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[self._delete(topic.name, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._replicas.partition(topic, asked.partition_index)
            partition.require_leader()
            low_watermark = partition.delete_records(asked.offset)
        except KafkaError as error:
            return _error(asked, error.code)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=low_watermark
        )


def _error(asked: DeleteRecordsPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=code
    )


def error_response(
    request: DeleteRecordsRequest,
    code: ErrorCode,
    _version: int,
) -> DeleteRecordsResponse:
    """Every partition of the request answered with `code`."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_error(asked, code) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )
