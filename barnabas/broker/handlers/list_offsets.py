"""ListOffsets (key 2): offsets by timestamp, and the start and end of a log.

Special timestamps: -1 the end (by isolation level), -2 the start, -3 the greatest timestamp (v7),
-4 the start on this broker's disk (v8), -5 the end of the part in remote storage (v9), -6 the first
offset that is not there yet (v11). This broker has no remote storage, so -4 is -2, and -5 and -6
find nothing, as in Kafka without it.

The end for consumers is the high watermark or the last stable offset; for followers, which send
their replica id, it is the log end. The replica id -2 asks any replica, leader or not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.leader.record_work import Interrupted, RecordWork
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import DESCRIBE, READ, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError, downgrade
from barnabas.protocol.messages.list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.records.record import RecordTooLargeError
from barnabas.protocol.steps import Steps, counted, in_steps
from barnabas.storage.log.log import Log

__all__ = ["API", "RIGHTS", "handle"]


def _refused(topic: ListOffsetsTopic, code: ErrorCode, _version: int) -> Steps[Any]:
    answers = yield from in_steps(partial(_error, code=code), topic.partitions)
    return ListOffsetsTopicResponse(name=topic.name, partitions=answers)


def _counts(topic: ListOffsetsTopic) -> bool:
    """Return whether records are to be counted."""
    return any(each.count_from >= 0 for each in topic.partitions)


RIGHTS = Rights(
    each=Each("topics", (Need(DESCRIBE, TOPIC, "name"),), _refused, "topics"),
    # As for DescribeProducers.
    inside=(Need(READ, TOPIC, "name", when=_counts, without="no producer id"),),
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_LEADER_EPOCH_SINCE = 4
_READ_UNCOMMITTED, _READ_COMMITTED = range(2)
_CONSUMER, _DEBUGGER = -1, -2
"""Special replica ids."""
_log = get_logger(__name__)


def handle(
    replicas: ReplicaManager,
    counted_batches: Callable[[], int],
    request: ListOffsetsRequest,
    context: RequestContext,
) -> Steps[ListOffsetsResponse]:
    """Answer from the logs of this broker, in slices: a search by time may read many records.

    `counted_batches` returns `group.lag.counted.batches`: the most batches that one request counts.
    """
    asked_for = yield from counted(
        (topic.name, asked.partition_index)
        for topic in request.topics
        for asked in topic.partitions
    )
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    work = replicas.record_work
    topics, left = [], counted_batches()
    is_counting = left > 0
    for topic in request.topics:
        if not topic.partitions:
            continue
        answers = []
        # A partition that is named twice is refused once.
        for asked in {asked.partition_index: asked for asked in topic.partitions}.values():
            try:
                if asked_for[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = replicas.partition(topic.name, asked.partition_index)
                if request.replica_id == _DEBUGGER:
                    partition.require_replica(asked.current_leader_epoch)
                else:
                    partition.require_leader(asked.current_leader_epoch)
                find = _find(work, partition, asked, context.api_version, request)
                answer = yield from find
                if is_counting and _is_counted(asked, request):
                    left -= yield from _count(work, partition, asked, answer, left)
                    if not context.allows(READ, TOPIC, topic.name, log_denied=False):
                        answer.held_back_by = -1
            except KafkaError as error:
                code = downgrade(API.key, context.api_version, error.code)
                answer = _error(asked, code)
            except RecordTooLargeError:
                answer = _error(asked, ErrorCode.INVALID_RECORD)
            except ProtocolError as error:
                _log.error("damaged log", topic=topic.name, reason=str(error))
                answer = _error(asked, ErrorCode.CORRUPT_MESSAGE)
            answers.append(answer)
            yield None
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(
    work: RecordWork,
    partition: Partition,
    asked: ListOffsetsPartition,
    version: int,
    request: ListOffsetsRequest,
) -> Steps[ListOffsetsPartitionResponse]:
    log, timestamp = partition.log, asked.timestamp
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if timestamp < 0 and (timestamp not in _SINCE or version < _SINCE[timestamp]):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return answer
    if timestamp == LATEST:
        answer.offset = _end(partition, request)
        _require_settled(partition, request)
        epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
    else:
        search = (
            log.offset_of_max_timestamp()
            if timestamp == MAX_TIMESTAMP
            else log.offset_for_timestamp(timestamp)
        )
        is_same = partial(_is_same, partition, log, partition.leader_epoch)
        try:
            found = yield from work.carry_out(partition.topic, search, is_same)
        except Interrupted:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
        if found is None or found.offset >= _end(partition, request):
            _require_settled(partition, request)
            return answer
        answer.offset = found.offset
        answer.timestamp = found.timestamp
        epoch = found.leader_epoch
    if version >= _LEADER_EPOCH_SINCE:
        answer.leader_epoch = epoch
    return answer


def _is_counted(asked: ListOffsetsPartition, request: ListOffsetsRequest) -> bool:
    """Return whether the request asks for the records from an offset to the high watermark."""
    return (
        asked.count_from >= 0
        and asked.timestamp == LATEST
        and request.replica_id == _CONSUMER
        and request.isolation_level == _READ_UNCOMMITTED
    )


def _count(
    work: RecordWork,
    partition: Partition,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    max_batches: int,
) -> Steps[int]:
    """Fill in the counts of a response; return how many batches were looked at.

    The counts of a damaged log stay unknown: a client that reads meets the damage itself.
    """
    log = partition.log
    answer.last_stable_offset = log.last_stable_offset
    by = log.held_back_by
    is_same = partial(_is_same, partition, log, partition.leader_epoch)
    counting = log.count_records(asked.count_from, max_batches)
    try:
        counted = yield from work.carry_out(partition.topic, counting, is_same)
    except Interrupted:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
    except ProtocolError as error:
        _log.error("damaged log", topic=partition.topic, reason=str(error))
        return 0
    answer.to_read, answer.held_back = counted.to_read, counted.held_back
    answer.counted_to = counted.counted_to
    answer.held_back_by = -1 if by is None else by
    return counted.batches


def _is_same(partition: Partition, log: Log, leader_epoch: int) -> bool:
    """Return whether a search may continue: nothing can have truncated the log."""
    return partition.log is log and log.is_whole and partition.leader_epoch == leader_epoch


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    if request.replica_id != _CONSUMER:
        return partition.log.log_end_offset
    return partition.readable_end(read_committed=request.isolation_level == _READ_COMMITTED)


def _require_settled(partition: Partition, request: ListOffsetsRequest) -> None:
    """Refuse consumers an end that an earlier leader may have exceeded (KIP-207)."""
    if request.replica_id == _CONSUMER and partition.is_catching_up:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def _error(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
