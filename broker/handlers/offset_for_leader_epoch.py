"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a reader can detect that the
log was truncated under it (KIP-101, KIP-320). v3 tells who asks, v4 is flexible."""

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

__all__ = ["API", "SERVES", "OffsetForLeaderEpochHandler", "error_response"]

SERVES = range(2, 5)


class OffsetForLeaderEpochHandler:
    """Answers from the leader-epoch cache of each log."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(
        self, request: OffsetForLeaderEpochRequest, _context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._end(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._replicas.partition(topic, asked.partition)
            partition.require_leader(asked.current_leader_epoch)
            epoch, end = partition.log.offset_for_epoch(asked.leader_epoch)
        except KafkaError as error:
            return EpochEndOffset(partition=asked.partition, error_code=error.code)
        return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def error_response(
    request: OffsetForLeaderEpochRequest,
    code: ErrorCode,
    _version: int,
) -> OffsetForLeaderEpochResponse:
    """Every partition of the request answered with `code`."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
