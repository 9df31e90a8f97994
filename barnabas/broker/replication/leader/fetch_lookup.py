"""The lookup shared by consumer and follower fetches: the replica, or the error for the client."""

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.leader.fetch_session import FetchedPartition
from barnabas.broker.replication.leader.leader_hints import current_leader
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.fetch import (
    API,
    EpochEndOffset,
    FetchPartition,
    LeaderIdAndEpoch,
    PartitionData,
)

LEADERS_SINCE = 16
WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_log = get_logger(__name__)


class FetchLookup:
    """The replicas of this broker, by the topic names and topic ids that Fetch uses."""

    def __init__(self, replicas: ReplicaManager, cache: MetadataCache) -> None:
        self.replicas = replicas
        self.cache = cache

    def topic_name(self, fetched: FetchedPartition) -> str:
        """Return the name of a fetched topic; raises KafkaError for an unknown topic id."""
        topic = fetched.topic
        if isinstance(topic, str):
            return topic
        name = self.cache.topic_name(topic)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def find(self, fetched: FetchedPartition) -> Partition:
        """Return the replica that serves a fetched partition; raises KafkaError."""
        topic = self.topic_name(fetched)
        partition = self.replicas.partition(topic, fetched.wanted.partition)
        if isinstance(fetched.topic, bytes) and partition.topic_id != fetched.topic:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def refuse(self, fetched: FetchedPartition, error: KafkaError, version: int) -> PartitionData:
        """Return the response for a partition that cannot be read."""
        answer = error_of(fetched.wanted, downgrade(API.key, version, error.code))
        topic = fetched.topic
        name = (self.cache.topic_name(topic) or "") if isinstance(topic, bytes) else topic
        if error.code in WITH_LEADER and version >= LEADERS_SINCE:
            leader = current_leader(self.cache, name, fetched.wanted.partition)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        elif error.code is ErrorCode.CORRUPT_MESSAGE:
            # The other errors correct the client; this one is a fault of this broker.
            partition = self.replicas.partition(name, fetched.wanted.partition)
            partition.cells.failed_fetches.value += 1
            _log.error(
                "damaged log", topic=name, partition=fetched.wanted.partition, reason=str(error)
            )
        return answer


def diverges(partition: Partition, wanted: FetchPartition, answer: PartitionData) -> bool:
    """Whether the client's log diverges: its last epoch ended earlier in this log (KIP-595).

    The response then names the epoch and its end offset here. Raises
    KafkaError(OFFSET_OUT_OF_RANGE) for an epoch that this log does not know.
    """
    epoch, end = partition.log.offset_for_epoch(wanted.last_fetched_epoch)
    if end < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return False
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def error_of(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    """Return a partition's answer that carries an error only."""
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
