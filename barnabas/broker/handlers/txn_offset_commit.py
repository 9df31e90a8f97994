"""TxnOffsetCommit (key 28): commit a group's offsets in a transaction (KIP-98).

v3 checks the member's generation (KIP-447), v4 TRANSACTION_ABORTABLE, from v5 on this request adds
the group's partition to the transaction (KIP-890), v6 has topic ids (KIP-1319). Errors by
partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all of them
INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID,
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, and those of coordinators.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.groups.known_offsets import KnownOffsets, find_topic
from barnabas.broker.security.rights import (
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Each,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions.verification_request import Answers
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.coordinator.client_errors import coordinator_error
from barnabas.coordinator.decision import TransactionalProducer
from barnabas.coordinator.group.committing import CommitOffsets
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, in_task, wait
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.txn_offset_commit import (
    API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.producers.verification import UNVERIFIED

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    whole=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id"), Need(READ, GROUP, "group_id")),
    each=Each(
        "topics",
        (Need(READ, TOPIC, "name", "topic_id"),),
        lambda topic, code, _: _answer(topic, code),
        "topics",
    ),
)

_ADDS_SINCE = 5
_TOPIC_IDS_SINCE = 6


def handle(
    groups: GroupCoordinator,
    cache: MetadataCache,
    verifier: TransactionVerifier,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Steps[TxnOffsetCommitResponse]:
    """Commit the offsets of partitions that exist; answer when the records are committed."""
    response = TxnOffsetCommitResponse(topics=[])
    known_offsets = KnownOffsets(API.key, context.api_version)
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    for topic in request.topics:
        known, unknown = find_topic(cache, topic, by_id=by_id)
        answer = yield from _answer(topic, unknown)
        response.topics.append(answer)
        if known is not None:
            yield from known_offsets.add(known, topic.partitions, answer.partitions)
    producer = TransactionalProducer(request.producer_id, request.producer_epoch, UNVERIFIED)
    commit = CommitOffsets(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        known_offsets.offsets,
        producer=producer,
    )
    adds = context.api_version >= _ADDS_SINCE
    claim = Claim(request.transactional_id, *producer[:2], NO_SEQUENCE, adds, context.owner)
    yield from known_offsets.commit(lambda: _commit(groups, verifier, claim, commit))
    return response


def _commit(
    groups: GroupCoordinator, verifier: TransactionVerifier, claim: Claim, commit: CommitOffsets
) -> Soon[list[ErrorCode]]:
    """Ask the transaction coordinator before the producer's first offsets of a transaction."""
    adds = claim.epoch_per_transaction
    if not adds and not verifier.verifies:
        return groups.commit_offsets(commit)
    index = groups.partition_of(commit.group_id)
    guard = groups.begin_verification(commit.group_id, claim, index)
    if guard is None:
        return groups.commit_offsets(_guarded(commit, claim, None), index)
    partition = TopicPartition(CONSUMER_OFFSETS, index)
    producer = Producer(claim.producer_id, claim.producer_epoch)
    answers = verifier.ask(
        claim.transactional_id, producer, [partition], adds=adds, principal=claim.principal
    )
    if isinstance(answers, asyncio.Future):
        return in_task(_commit_later(groups, claim, commit, guard, answers))
    return _commit_verified(groups, _guarded(commit, claim, guard), index, answers[partition])


def _guarded(commit: CommitOffsets, claim: Claim, guard: object | None) -> CommitOffsets:
    producer = TransactionalProducer(claim.producer_id, claim.producer_epoch, guard)
    return commit._replace(producer=producer)


async def _commit_later(
    groups: GroupCoordinator,
    claim: Claim,
    commit: CommitOffsets,
    guard: object | None,
    answers: asyncio.Future[Answers],
) -> list[ErrorCode]:
    (((_, index), code),) = (await answers).items()
    if claim.epoch_per_transaction and code is ErrorCode.NONE:
        # The marker of the transaction before may have removed the guard meanwhile. An epoch of the
        # newer protocol has one transaction, so a late request is refused for its epoch.
        guard = groups.begin_verification(commit.group_id, claim, index)
    return await wait(_commit_verified(groups, _guarded(commit, claim, guard), index, code))


def _commit_verified(
    groups: GroupCoordinator, commit: CommitOffsets, index: int, code: ErrorCode
) -> Soon[list[ErrorCode]]:
    if code is not ErrorCode.NONE:
        raise coordinator_error(KafkaError(code))
    return groups.commit_offsets(commit, index)


def _answer(
    topic: TxnOffsetCommitRequestTopic, code: ErrorCode
) -> Steps[TxnOffsetCommitResponseTopic]:
    def answer(asked: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(
            partition_index=asked.partition_index, error_code=code
        )

    yield None
    partitions = yield from in_steps(answer, topic.partitions)
    return TxnOffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )
