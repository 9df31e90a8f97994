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
from collections.abc import Sequence

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.groups.known_offsets import (
    KnownOffsets,
    find_topic,
    next_offsets,
    repeated,
    run_if_short,
)
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
from barnabas.broker.server.repeats import Repeat
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.coordinator.client_errors import coordinator_error
from barnabas.coordinator.decision import TransactionWriter
from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, at_hand, settle
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.coordinator.transaction.repeated import RepeatedStep
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

__all__ = ["API", "RIGHTS", "again", "handle"]

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
    _transactions: TransactionCoordinator,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Soon[TxnOffsetCommitResponse] | Steps[TxnOffsetCommitResponse]:
    """Commit the offsets of partitions that exist; answer when the records are committed."""
    return run_if_short(_handle(groups, cache, verifier, request, context), request.topics)


def _handle(
    groups: GroupCoordinator,
    cache: MetadataCache,
    verifier: TransactionVerifier,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Steps[TxnOffsetCommitResponse]:
    response = TxnOffsetCommitResponse(topics=[])
    known_offsets = KnownOffsets(API.key, context.api_version)
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    for topic in request.topics:
        known, unknown = find_topic(cache, topic, by_id=by_id)
        answer = yield from _answer(topic, unknown)
        response.topics.append(answer)
        if known is not None:
            yield from known_offsets.add(known, topic.partitions, answer.partitions)
    commit, claim = _commit_of(request, context, known_offsets.offsets)
    yield from known_offsets.commit(lambda: _commit(groups, verifier, claim, commit))
    return response


def _commit_of(
    request: TxnOffsetCommitRequest, context: RequestContext, offsets: Sequence[NewOffset]
) -> tuple[CommitOffsets, Claim]:
    producer = TransactionWriter(request.producer_id, request.producer_epoch, UNVERIFIED)
    commit = CommitOffsets(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        offsets,
        producer=producer,
        knows_epochs=context.api_version >= _TOPIC_IDS_SINCE,
    )
    adds = context.api_version >= _ADDS_SINCE
    claim = Claim(request.transactional_id, *producer[:2], NO_SEQUENCE, adds, context.owner)
    return commit, claim


def _commit(
    groups: GroupCoordinator, verifier: TransactionVerifier, claim: Claim, commit: CommitOffsets
) -> Steps[list[ErrorCode]]:
    """Ask the transaction coordinator before the producer's first offsets of a transaction."""
    adds = claim.epoch_per_transaction
    if not adds and not verifier.verifies:
        return (yield from settle(groups.commit_offsets(commit)))
    index = groups.partition_of(commit.group_id)
    guard = groups.begin_verification(commit.group_id, claim, index)
    if guard is not None:
        partition = TopicPartition(CONSUMER_OFFSETS, index)
        producer = Producer(claim.producer_id, claim.producer_epoch)
        answers = verifier.ask(
            claim.transactional_id, producer, [partition], adds=adds, principal=claim.principal
        )
        waits = isinstance(answers, asyncio.Future)
        code = (yield from settle(answers))[partition]
        if code is not ErrorCode.NONE:
            raise coordinator_error(KafkaError(code))
        if adds and waits:
            # The marker of the transaction before may have removed the guard meanwhile. An epoch of
            # the newer protocol has one transaction, so a late request is refused for its epoch.
            guard = groups.begin_verification(commit.group_id, claim, index)
    return (yield from settle(groups.commit_offsets(_guarded(commit, claim, guard), index)))


def _guarded(commit: CommitOffsets, claim: Claim, guard: object | None) -> CommitOffsets:
    producer = TransactionWriter(claim.producer_id, claim.producer_epoch, guard)
    return commit._replace(producer=producer)


# -- further offsets of the same partitions -------------------------------------------------------

_Known = tuple[
    GroupCoordinator,
    MetadataCache,
    TransactionVerifier,
    TransactionCoordinator,
    CommitOffsets,
    Claim,
    TopicPartition,
    RepeatedStep,
]


def again(
    groups: GroupCoordinator,
    cache: MetadataCache,
    verifier: TransactionVerifier,
    transactions: TransactionCoordinator,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    response: TxnOffsetCommitResponse,
) -> Repeat | None:
    """Serve a producer that commits further offsets of the same partitions, in this transaction and
    in later ones, as long as these exist.

    Both coordinators decide each time. The one of the transaction has to be this broker.
    """
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    found = repeated(cache, request.topics, response.topics, by_id=by_id)
    if found is None:
        return None
    commit, claim = _commit_of(request, context, found.offsets)
    place = TopicPartition(CONSUMER_OFFSETS, groups.partition_of(commit.group_id))
    addition = AddPartitions(
        claim.transactional_id,
        Producer(claim.producer_id, claim.producer_epoch),
        (place,),
        TV2,
        principal=claim.principal,
    )
    added = transactions.repeated(addition)
    known = groups, cache, verifier, transactions, commit, claim, place, added
    return Repeat(_commit_again, known, ("producer_epoch", *found.fields), (), found.basis)


def _commit_again(known: _Known, now_ms: int, values: tuple[int, ...]) -> tuple[()] | None:
    groups, cache, verifier, transactions, commit, claim, place, added = known
    epoch, *values_of_offsets = values
    offsets = next_offsets(cache, commit.offsets, values_of_offsets)
    if offsets is None:
        return None
    claim = claim._replace(producer_epoch=epoch)
    index = groups.partition_of(commit.group_id)
    if index != place.partition or not groups.commits_at_once(index):
        return None
    guard: object | None = UNVERIFIED
    if claim.epoch_per_transaction or verifier.verifies:
        guard = groups.begin_verification(commit.group_id, claim, index)
        # If the offsets are refused then, the handler asks once more, which has no other effect.
        producer = Producer(claim.producer_id, epoch)
        if guard is not None and claim.epoch_per_transaction:
            if not verifier.add_again(added, producer, now_ms):
                return None
        elif guard is not None:
            transactions.verify_all(
                (VerifyPartitions(claim.transactional_id, producer, (place,), claim.principal),)
            )
    commit = _guarded(commit, claim, guard)._replace(offsets=offsets)
    at_hand(groups.commit_offsets(commit, index))
    return ()


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
