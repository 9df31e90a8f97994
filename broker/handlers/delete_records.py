"""DeleteRecords (key 21): move the start of logs forward (KIP-107). v2 is flexible.

The answer waits until the new starts are on disk, and until all replicas that are alive have them:
what was deleted comes back neither with a crash nor with another leader.
Refused for topics that are only compacted (POLICY_VIOLATION), whose readers expect the last value
of every key, and for internal topics.
"""

from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.record_deletion import Deletion, delete_records, followed
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
        deletions: dict[Deletion, DeleteRecordsPartitionResult] = {}
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                # A partition that is named twice is deleted from once, as it was named last.
                partitions=[
                    self._delete(topic.name, asked, deletions)
                    for asked in {each.partition_index: each for each in topic.partitions}.values()
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
        await self._checkpoint(deletions)
        for deletion, error in (await followed(deletions, request.timeout_ms / 1000)).items():
            if not deletions[deletion].error_code:
                _fail(deletions[deletion], error)
        return DeleteRecordsResponse(topics=topics)

    async def _checkpoint(self, deletions: dict[Deletion, DeleteRecordsPartitionResult]) -> None:
        """Write down where the logs start now."""
        moved: dict[LogDir, list[DeleteRecordsPartitionResult]] = {}
        for deletion, result in deletions.items():
            moved.setdefault(deletion.partition.log.log_dir, []).append(result)
        for log_dir, results in moved.items():
            try:
                await self._replicas.checkpoint(log_dir)
            except KafkaError as error:
                for result in results:
                    _fail(result, error)

    def _delete(
        self,
        topic: str,
        asked: DeleteRecordsPartition,
        deletions: dict[Deletion, DeleteRecordsPartitionResult],
    ) -> DeleteRecordsPartitionResult:
        """Delete from one log; `deletions` gathers the answers for logs whose start has changed."""
        answer = _answer(asked)
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._replicas.partition(topic, asked.partition_index)
            partition.require_leader()
            start = partition.log.log_start_offset
            deletion = delete_records(partition, asked.offset)
        except KafkaError as error:
            _fail(answer, error)
            return answer
        answer.low_watermark = partition.log.log_start_offset
        if answer.low_watermark > start or partition.low_watermark < deletion.offset:
            deletions[deletion] = answer
        return answer


def _answer(
    asked: DeleteRecordsPartition, code: ErrorCode = ErrorCode.NONE
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_OFFSET, error_code=code
    )


def _fail(answer: DeleteRecordsPartitionResult, error: KafkaError) -> None:
    answer.error_code, answer.low_watermark = error.code, NO_OFFSET


def error_response(
    request: DeleteRecordsRequest,
    code: ErrorCode,
    _version: int,
) -> DeleteRecordsResponse:
    """Every partition of the request answered with `code`."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_answer(asked, code) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )
