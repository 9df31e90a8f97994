"""AddPartitionsToTxn (key 24): partitions join a transaction, or are verified to be in it.

Up to v3 from clients of the older protocol, one transaction each; from v4 on from leaders, any
number of transactions (KIP-890). All or nothing: where a partition cannot be added
(UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED for internal topics), the others are
answered OPERATION_NOT_ATTEMPTED. A client may register its group's offsets too (KIP-609).

In a cluster v4 and later are served on the brokers' own listener only. Many transactions share such
a request, so none of them is waited for: CONCURRENT_TRANSACTIONS is said at once, and the leader
asks again; what is not committed soon is COORDINATOR_NOT_AVAILABLE, and may be added all the same.
"""

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Final

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
)
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, promised, settled, then
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "SERVES", "SERVES_CLIENTS", "AddPartitionsToTxnHandler", "error_response"]

SERVES = range(6)
_BETWEEN_BROKERS_SINCE = 4
SERVES_CLIENTS = range(_BETWEEN_BROKERS_SINCE)
"""Where brokers have a listener for themselves."""
PATIENCE_S: Final = 1.0
"""For followers of one partition that are slow, while others' answers wait in the same request."""
_NEVER_WRITTEN_TO = INTERNAL_TOPICS - {CONSUMER_OFFSETS}
Topics = Sequence[AddPartitionsToTxnTopic]
Answers = dict[TopicPartition, ErrorCode]


class AddPartitionsToTxnHandler:
    """Asks the coordinator of each transactional id, which must be this broker."""

    def __init__(
        self, coordinator: TransactionCoordinator, groups: GroupCoordinator, cache: MetadataCache
    ) -> None:
        self._coordinator = coordinator
        self._groups = groups
        self._cache = cache

    def handle(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> Soon[AddPartitionsToTxnResponse]:
        if context.api_version >= _BETWEEN_BROKERS_SINCE:
            return promised(self._for_brokers(request))
        topics = request.v3_and_below_topics
        refused = self._refused(topics, INTERNAL_TOPICS)
        if refused:
            return _flat(topics, refused)
        added = _partitions(topics)
        if request.group_id is not None:
            added.append((CONSUMER_OFFSETS, self._groups.partition_of(request.group_id)))
        answer = self._coordinator.add_partitions(
            request.v3_and_below_transactional_id,
            Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            added,
            connection=context.connection_id,
        )
        return then(answer, lambda _: _flat(topics, {}))

    def _refused(self, topics: Topics, forbidden: Container[str]) -> Answers:
        """Why the request cannot be served whole; empty where it can."""
        answers = {each: self._refusal(each, forbidden) for each in _partitions(topics)}
        if not any(answers.values()):
            return {}
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in answers.items()}

    def _refusal(self, partition: TopicPartition, forbidden: Container[str]) -> ErrorCode:
        if partition[0] in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._cache.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def _for_brokers(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        # All are asked before any is waited for: one that is not free must not hold up the others.
        answers = await asyncio.gather(*map(self._for_leader, request.transactions))
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=_results(each.topics, answer),
                )
                for each, answer in zip(request.transactions, answers, strict=True)
            ]
        )

    async def _for_leader(self, asked: AddPartitionsToTxnTransaction) -> Answers:
        # Leaders speak for the offsets of groups too.
        refused = self._refused(asked.topics, _NEVER_WRITTEN_TO)
        if refused:
            return refused
        partitions = _partitions(asked.topics)
        producer = Producer(asked.producer_id, asked.producer_epoch)
        try:
            if asked.verify_only:
                return self._coordinator.verify(asked.transactional_id, producer, partitions)
            added = self._coordinator.add_for_other_leader(
                asked.transactional_id, producer, partitions
            )
            async with asyncio.timeout(PATIENCE_S):
                await settled(added)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        except TimeoutError:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {}


def _partitions(topics: Topics) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _flat(topics: Topics, answers: Answers) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, answers))


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], answers: Answers
) -> list[AddPartitionsToTxnTopicResult]:
    """One result for each partition that was asked for; those not among `answers` are well."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=each,
                    partition_error_code=answers.get((topic.name, each), ErrorCode.NONE),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, version: int
) -> AddPartitionsToTxnResponse:
    """The error for every partition of a client, for the whole request of a broker."""
    if version >= _BETWEEN_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = request.v3_and_below_topics
    told = downgrade(API.key, version, code)
    return _flat(topics, dict.fromkeys(_partitions(topics), told))
