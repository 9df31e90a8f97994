"""Commits of offsets by clients: the part of a request that names partitions that exist."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.cluster.cache import MetadataCache, TopicMetadata
from barnabas.broker.server.repeats import FEW
from barnabas.coordinator.group.committing import NewOffset
from barnabas.coordinator.soon import Soon, settle
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.steps import Steps, promptly

Asked = Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]
Answered = Sequence[OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition]
Topics = Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]
AnsweredTopics = Sequence[OffsetCommitResponseTopic | TxnOffsetCommitResponseTopic]
T = TypeVar("T")


def run_if_short(steps: Steps[T], topics: Topics) -> T | Steps[T]:
    """Take the steps of a commit that is short up to its first wait; others are for the slicer."""
    few = len(topics) <= FEW and sum([len(each.partitions) for each in topics]) <= FEW
    return promptly(steps) if few else steps


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
    """The offsets of a request for partitions that exist, and the positions of their responses."""

    def __init__(self, api_key: int, version: int) -> None:
        self.offsets: list[NewOffset] = []
        self._answers: list[OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition] = []
        self._api_key = api_key
        self._version = version

    def add(self, topic: TopicMetadata, asked: Asked, answers: Answered) -> Steps[None]:
        """Add the partitions of a topic that exist; the responses of the others keep the error."""
        for each, answer in zip(asked, answers, strict=True):
            yield None
            if each.partition_index in topic.partitions:
                self._answers.append(answer)
                self.offsets.append(new_offset(topic, each))

    def commit(
        self, commit: Callable[[], Soon[list[ErrorCode]] | Steps[list[ErrorCode]]]
    ) -> Steps[None]:
        """Put the codes of `commit` into the responses of known partitions."""
        if not self.offsets:
            return
        try:
            codes = yield from settle(commit())
        except KafkaError as error:
            code = downgrade(self._api_key, self._version, error.code)
            codes = [code] * len(self._answers)
        for answer, code in zip(self._answers, codes, strict=True):
            answer.error_code = code


class Repeated(NamedTuple):
    """The offsets of a request whose next one may have others for the same partitions."""

    fields: tuple[str, ...]
    """The paths of the offsets in the request."""
    offsets: list[NewOffset]
    basis: tuple[Any, ...]
    """The topics with their ids."""


def repeated(
    cache: MetadataCache, asked: Topics, answered: AnsweredTopics, *, by_id: bool
) -> Repeated | None:
    """Return the offsets of a request that was answered; None if one of them was refused."""
    answers = [each for topic in answered for each in topic.partitions]
    if not answers or any(each.error_code for each in answers):
        return None
    fields, offsets, ids = [], [], {}
    for number, topic in enumerate(asked):
        known, _ = find_topic(cache, topic, by_id=by_id)
        if known is None:
            return None
        ids[known.name] = known.topic_id
        partitions: Asked = topic.partitions
        for at, each in enumerate(partitions):
            fields.append(f"topics.{number}.partitions.{at}.committed_offset")
            offsets.append(new_offset(known, each))
    return Repeated(tuple(fields), offsets, tuple(ids.items()))


def next_offsets(
    cache: MetadataCache, known: Sequence[NewOffset], values: Sequence[int]
) -> list[NewOffset] | None:
    """Return the offsets of the next request; None if one of the topics is gone."""
    offsets = []
    for (topic, index, _, epoch, metadata, topic_id), offset in zip(known, values, strict=True):
        found = cache.topic(topic)
        # A topic loses no partition.
        if found is None or found.topic_id != topic_id:
            return None
        offsets.append(NewOffset(topic, index, offset, epoch, metadata, topic_id))
    return offsets
