"""DeleteRecords (key 21): move the start of logs forward (KIP-107). v2 is flexible.

The answer waits until the new starts are on disk: what was deleted does not come back with a crash.
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
from barnabas.storage.log_dir import LogDir

__all__ = ["API", "SERVES", "DeleteRecordsHandler", "error_response"]

SERVES = range(3)
NO_OFFSET = -1


class DeleteRecordsHandler:
    """Deletes on the logs this broker leads."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def handle(
        self, request: DeleteRecordsRequest, _context: RequestContext
    ) -> DeleteRecordsResponse:
        moved: dict[LogDir, list[DeleteRecordsPartitionResult]] = {}
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                # A partition that is named twice is deleted from once, as it was named last.
                partitions=[
                    self._delete(topic.name, asked, moved)
                    for asked in {each.partition_index: each for each in topic.partitions}.values()
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
        for log_dir, results in moved.items():
            try:
                await self._replicas.checkpoint(log_dir)
            except KafkaError as error:
                for result in results:
                    result.error_code, result.low_watermark = error.code, NO_OFFSET
        return DeleteRecordsResponse(topics=topics)

    def _delete(
        self,
        topic: str,
        asked: DeleteRecordsPartition,
        moved: dict[LogDir, list[DeleteRecordsPartitionResult]],
    ) -> DeleteRecordsPartitionResult:
        """Delete from one log; `moved` gathers the answers for logs whose start has changed."""
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._replicas.partition(topic, asked.partition_index)
            partition.require_leader()
            start = partition.log.log_start_offset
            low_watermark = partition.delete_records(asked.offset)
        except KafkaError as error:
            return _error(asked, error.code)
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=low_watermark
        )
        if low_watermark > start:
            moved.setdefault(partition.log.log_dir, []).append(result)
        return result


def _error(asked: DeleteRecordsPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_OFFSET, error_code=code
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
