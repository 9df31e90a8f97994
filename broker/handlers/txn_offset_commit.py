"""TxnOffsetCommit (key 28): a group's offsets as a part of a transaction (KIP-98).

v3 members are held to their generation (KIP-447), v4 TRANSACTION_ABORTABLE, v5 the group's
partition joins the transaction by this alone (KIP-890). Errors by partition:
UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE; for all of them INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, INVALID_PRODUCER_EPOCH,
INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE, and
those of coordinators.
"""

import asyncio

from barnabas.broker.coordination.commit_answer import CommitAnswer
from barnabas.broker.coordination.gate import TransactionGate
from barnabas.broker.coordination.question import Answers
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.faults import as_coordinator
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, settled
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.txn_offset_commit import (
    API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.verification import UNVERIFIED

__all__ = ["API", "SERVES", "TxnOffsetCommitHandler", "error_response"]

SERVES = range(6)
_ADDS_SINCE = 5


class TxnOffsetCommitHandler:
    """Commits what names partitions that exist; answered when the records are committed."""

    def __init__(
        self, groups: GroupCoordinator, cache: MetadataCache, gate: TransactionGate
    ) -> None:
        self._groups = groups
        self._cache = cache
        self._gate = gate

    def handle(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Soon[TxnOffsetCommitResponse]:
        commit = CommitAnswer(TxnOffsetCommitResponse(topics=[]), API.key, context.api_version)
        asked = TxnOffsetCommitRequest(
            transactional_id=request.transactional_id,
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=[],
        )
        for topic in request.topics:
            answer = _answer(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            commit.response.topics.append(answer)
            known = self._cache.topic(topic.name)
            if known is None:
                continue
            wanted = commit.choose(topic.partitions, answer.partitions, known.partitions)
            if wanted:
                asked.topics.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=wanted))
        if not asked.topics:
            return commit.response
        adds = context.api_version >= _ADDS_SINCE
        return commit.complete(lambda: self._commit(asked, adds=adds))

    def _commit(
        self, asked: TxnOffsetCommitRequest, *, adds: bool
    ) -> Soon[TxnOffsetCommitResponse]:
        if not adds and not self._gate.verifies:
            return self._groups.commit_transactional(asked, UNVERIFIED)
        guard = self._groups.begin_verification(asked, epoch_per_transaction=adds)
        if guard is None:
            return self._groups.commit_transactional(asked, None)
        partition = (CONSUMER_OFFSETS, self._groups.partition_of(asked.group_id))
        producer = Producer(asked.producer_id, asked.producer_epoch)
        admission = self._gate.admit(asked.transactional_id, producer, [partition], adds=adds)
        if isinstance(admission, asyncio.Future):
            return asyncio.ensure_future(
                self._when_admitted(asked, guard, partition, admission, adds=adds)
            )
        return self._admitted(asked, guard, admission[partition])

    async def _when_admitted(
        self,
        asked: TxnOffsetCommitRequest,
        guard: object,
        partition: TopicPartition,
        admission: asyncio.Future[Answers],
        *,
        adds: bool,
    ) -> TxnOffsetCommitResponse:
        code = (await admission)[partition]
        if adds and code is ErrorCode.NONE:
            # The marker of the transaction before may have taken the guard away meanwhile; an epoch
            # of the newer protocol has one transaction, so what is late itself is refused for that.
            guard = self._groups.begin_verification(asked, epoch_per_transaction=True)
        return await settled(self._admitted(asked, guard, code))

    def _admitted(
        self, asked: TxnOffsetCommitRequest, guard: object, code: ErrorCode
    ) -> Soon[TxnOffsetCommitResponse]:
        if code is not ErrorCode.NONE:
            raise as_coordinator(KafkaError(code))
        return self._groups.commit_transactional(asked, guard)


def _answer(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def error_response(
    request: TxnOffsetCommitRequest, code: ErrorCode, version: int
) -> TxnOffsetCommitResponse:
    """The error for every partition."""
    told = downgrade(API.key, version, code)
    return TxnOffsetCommitResponse(topics=[_answer(topic, told) for topic in request.topics])
