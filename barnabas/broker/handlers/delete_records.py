"""DeleteRecords (key 21): move the start of logs forward (KIP-107). v2 is flexible.

The response waits until the new log starts are on disk, and until all replicas that are alive have
them: deleted records return neither after a crash nor with another leader. Refused for internal
topics, and for topics that are only compacted (POLICY_VIOLATION), because their consumers expect
the last value of every key.
"""

from functools import partial
from typing import Any

from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.leader.record_deletion import (
    Deletion,
    await_deletions,
    delete_records,
)
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import DELETE, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_records import (
    API,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.storage.files.log_dir import LogDir

__all__ = ["API", "RIGHTS", "handle"]


def _refused(topic: DeleteRecordsTopic, code: ErrorCode, _version: int) -> Steps[Any]:
    answers = yield from in_steps(partial(_answer, code=code), topic.partitions)
    return DeleteRecordsTopicResult(name=topic.name, partitions=answers)


RIGHTS = Rights(each=Each("topics", (Need(DELETE, TOPIC, "name"),), _refused, "topics"))

NO_OFFSET = -1


def handle(
    replicas: ReplicaManager, request: DeleteRecordsRequest, _context: RequestContext
) -> Steps[DeleteRecordsResponse]:
    """Delete from the logs that this broker leads."""
    deletions: dict[Deletion, DeleteRecordsPartitionResult] = {}
    response = DeleteRecordsResponse(topics=[])
    for topic in request.topics:
        if not topic.partitions:
            yield None
            continue
        # For a partition that is named twice the last offset counts.
        wanted = {each.partition_index: each for each in topic.partitions}
        delete = partial(_delete, replicas, topic.name, deletions)
        answers = yield from in_steps(delete, wanted.values())
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    yield in_task(_end(replicas, deletions, request.timeout_ms / 1000))
    return response


async def _end(
    replicas: ReplicaManager,
    deletions: dict[Deletion, DeleteRecordsPartitionResult],
    timeout: float,
) -> None:
    """Return when checkpoints are written and replicas have deleted."""
    await _checkpoint(replicas, deletions)
    for deletion, error in (await await_deletions(deletions, timeout)).items():
        if not deletions[deletion].error_code:
            _fail(deletions[deletion], error)


async def _checkpoint(
    replicas: ReplicaManager, deletions: dict[Deletion, DeleteRecordsPartitionResult]
) -> None:
    """Write the new log starts to the checkpoint files."""
    moved: dict[LogDir, list[DeleteRecordsPartitionResult]] = {}
    for deletion, result in deletions.items():
        moved.setdefault(deletion.partition.log.log_dir, []).append(result)
    for log_dir, results in moved.items():
        try:
            await replicas.checkpoint(log_dir)
        except KafkaError as error:
            for result in results:
                _fail(result, error)


def _delete(
    replicas: ReplicaManager,
    topic: str,
    deletions: dict[Deletion, DeleteRecordsPartitionResult],
    asked: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult:
    """Delete from one log; `deletions` collects the responses for logs whose start has changed."""
    answer = _answer(asked)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = replicas.partition(topic, asked.partition_index)
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
