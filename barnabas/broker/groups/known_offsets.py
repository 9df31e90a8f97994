"""Commits of offsets by clients: the part of a request that names partitions that exist."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.broker.cluster.cache import MetadataCache, TopicMetadata
from barnabas.coordinator.group.committing import NewOffset
from barnabas.coordinator.soon import Soon
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

R = TypeVar("R")
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
                self.offsets.append(
                    NewOffset(
                        topic.name,
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata,
                        topic.topic_id,
                    )
                )

    def commit(self, response: R, commit: Callable[[], Soon[list[ErrorCode]]]) -> Soon[R]:
        """Return the response, with the codes of `commit` in the answers of known partitions."""
        if not self.offsets:
            return response
        try:
            codes = commit()
        except KafkaError as error:
            self._refuse(error)
            return response
        if isinstance(codes, asyncio.Future):
            return asyncio.ensure_future(self._fill_later(response, codes))
        self._fill(codes)
        return response

    async def _fill_later(self, response: R, codes: "asyncio.Future[list[ErrorCode]]") -> R:
        try:
            self._fill(await codes)
        except KafkaError as error:
            self._refuse(error)
        return response

    def _fill(self, codes: Sequence[ErrorCode]) -> None:
        for answer, code in zip(self._answers, codes, strict=True):
            answer.error_code = code

    def _refuse(self, error: KafkaError) -> None:
        code = downgrade(self._api_key, self._version, error.code)
        for answer in self._answers:
            answer.error_code = code
