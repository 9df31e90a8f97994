"""OffsetForLeaderEpoch (key 23): the end of a leader epoch (KIP-101, KIP-320).

A consumer detects with it that the log was truncated before its position. v3 has the replica id, v4
is flexible.
"""

from functools import partial
from typing import Any

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    TOPIC,
    Each,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "handle"]


def _refused(topic: OffsetForLeaderTopic, code: ErrorCode, _version: int) -> Steps[Any]:
    def refuse(asked: OffsetForLeaderPartition) -> EpochEndOffset:
        return EpochEndOffset(partition=asked.partition, error_code=code)

    ends = yield from in_steps(refuse, topic.partitions)
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends)


RIGHTS = Rights(
    each=Each(
        "topics",
        (Need(DESCRIBE, TOPIC, "topic", unless=Need(CLUSTER_ACTION, CLUSTER)),),
        _refused,
        "topics",
    )
)


def handle(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest, _context: RequestContext
) -> Steps[OffsetForLeaderEpochResponse]:
    """Answer from the leader-epoch cache of each log."""
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        yield None
        ends = yield from in_steps(partial(_end, replicas, topic.topic), topic.partitions)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


def _end(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replicas.partition(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
        epoch, end = partition.log.offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
