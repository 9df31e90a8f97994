"""Commits of offsets by clients: the part of a request that names partitions that exist."""

from collections.abc import Callable, Sequence

from barnabas.broker.cluster.cache import MetadataCache, TopicMetadata
from barnabas.coordinator.group.committing import NewOffset
from barnabas.coordinator.soon import Soon, settle
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
)
from barnabas.protocol.steps import Steps

Asked = Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]
Answered = Sequence[OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition]


def find_topic(
    cache: MetadataCache,
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    *,
    by_id: bool,
) -> tuple[TopicMetadata | None, ErrorCode]:
    """Return a topic of a request, and the error of its partitions that do not exist."""
    if not by_id:
        return cache.topic(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = cache.topic_by_id(topic.topic_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return known, unknown


def new_offset(
    topic: TopicMetadata, asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
) -> NewOffset:
    """Return the offset that a request commits for a partition of a topic."""
    return NewOffset(
        topic.name,
        asked.partition_index,
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata,
        topic.topic_id,
    )


class KnownOffsets:
    """The offsets of a request for partitions that exist, and the positions of their answers."""

    def __init__(self, api_key: int, version: int) -> None:
        self.offsets: list[NewOffset] = []
        self._answers: list[OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition] = []
        self._api_key = api_key
        self._version = version

    def add(self, topic: TopicMetadata, asked: Asked, answers: Answered) -> Steps[None]:
        """Add the partitions of a topic that exist; the answers of the others keep their error."""
        for each, answer in zip(asked, answers, strict=True):
            yield None
            if each.partition_index in topic.partitions:
                self._answers.append(answer)
                self.offsets.append(new_offset(topic, each))

    def commit(self, commit: Callable[[], Soon[list[ErrorCode]]]) -> Steps[None]:
        """Put the codes of `commit` into the answers of known partitions."""
        if not self.offsets:
            return
        try:
            codes = yield from settle(commit())
        except KafkaError as error:
            code = downgrade(self._api_key, self._version, error.code)
            codes = [code] * len(self._answers)
        for answer, code in zip(self._answers, codes, strict=True):
            answer.error_code = code
