"""What reading for consumers and for followers has in common: the replica, or why there is none."""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.fetch_session import FetchedPartition
from barnabas.broker.replication.leader_hints import current_leader
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
    """The replicas of this broker, by the names and ids that Fetch uses."""

    def __init__(self, replicas: ReplicaManager, cache: MetadataCache) -> None:
        self._replicas = replicas
        self._cache = cache

    def find(self, fetched: FetchedPartition) -> Partition:
        """The replica that serves a fetched partition; raises KafkaError."""
        topic = fetched.topic
        if isinstance(topic, bytes):
            name = self._cache.topic_name(topic)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
        partition = self._replicas.partition(topic, fetched.wanted.partition)
        if isinstance(fetched.topic, bytes) and partition.topic_id != fetched.topic:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def refuse(self, fetched: FetchedPartition, error: KafkaError, version: int) -> PartitionData:
        """The answer for a partition that cannot be read."""
        answer = error_of(fetched.wanted, downgrade(API.key, version, error.code))
        topic = fetched.topic
        name = (self._cache.topic_name(topic) or "") if isinstance(topic, bytes) else topic
        if error.code in WITH_LEADER and version >= LEADERS_SINCE:
            leader = current_leader(self._cache, name, fetched.wanted.partition)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        elif error.code is ErrorCode.CORRUPT_MESSAGE:
            # Others are said to clients that are behind; this one says that this broker is ill.
            partition = self._replicas.partition(name, fetched.wanted.partition)
            partition.cells.failed_fetches.value += 1
            _log.error(
                "damaged log", topic=name, partition=fetched.wanted.partition, reason=str(error)
            )
        return answer


def diverges(partition: Partition, wanted: FetchPartition, answer: PartitionData) -> bool:
    """Whether the reader's last epoch ended earlier here than it believes (KIP-595).

    The answer says then where. Raises KafkaError(OFFSET_OUT_OF_RANGE) for an epoch unheard of.
    """
    epoch, end = partition.log.offset_for_epoch(wanted.last_fetched_epoch)
    if end < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return False
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def error_of(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    """A partition's answer that is nothing but an error."""
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
