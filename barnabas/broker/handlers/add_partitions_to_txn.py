"""AddPartitionsToTxn (key 24): partitions join a transaction, or are verified to be in it.

Up to v3 from clients of the older protocol, one transaction each; from v4 on from leaders, any
number of transactions (KIP-890). All or nothing: if a partition cannot be added
(UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED for internal topics), the others get
OPERATION_NOT_ATTEMPTED. A client may register its group's offsets too (KIP-609).

In a cluster v4 and later are served on the brokers' own listener only. Many transactions share such
a request, so the coordinator does not wait for one of them: it answers CONCURRENT_TRANSACTIONS at
once, and the leader asks again. A partition whose record is not committed soon is answered
COORDINATOR_NOT_AVAILABLE, and may be added all the same.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
)
from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.security.rights import (
    CLUSTER,
    CLUSTER_ACTION,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import FEW, Repeat, RepeatByElement
from barnabas.broker.transactions.verification_request import VERIFICATIONS
from barnabas.coordinator.soon import Soon, ignore, in_task, map_answer, settle
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.protocol.errors import ErrorCode, KafkaError
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
from barnabas.protocol.steps import Steps, at_once, in_steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "again", "error_response", "handle"]

_CLIENTS = range(4)
RIGHTS = Rights(
    whole=(
        Need(CLUSTER_ACTION, CLUSTER, versions=range(4, 6)),
        Need(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id", versions=_CLIENTS),
    ),
    inside=(Need(WRITE, TOPIC, "name", versions=_CLIENTS),),
)

BETWEEN_BROKERS_SINCE = 4
PATIENCE_S: Final = 1.0
"""The longest wait in seconds for a record to be committed, while other answers wait."""
_NEVER_WRITTEN_TO = INTERNAL_TOPICS - {CONSUMER_OFFSETS}
Topics = Sequence[AddPartitionsToTxnTopic]
Partitions = dict[TopicPartition, None]
"""A set in the order of the request."""
Answers = dict[TopicPartition, ErrorCode]
Asked = Answers | ErrorCode | asyncio.Future[None]
"""The response about a transaction, or the future of its record."""
_Question: TypeAlias = "tuple[AddPartitions | VerifyPartitions, RepeatedStep | None]"
"""A leader's question, without its producer."""


def handle(
    coordinator: TransactionCoordinator,
    groups: GroupService,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Soon[AddPartitionsToTxnResponse] | Steps[AddPartitionsToTxnResponse]:
    """Ask the coordinator of each transactional id, which must be this broker."""
    if context.api_version >= BETWEEN_BROKERS_SINCE:
        return _for_brokers(coordinator, cache, request)
    steps = _for_client(coordinator, groups, cache, request, context)
    topics = request.v3_and_below_topics
    if len(topics) <= FEW and sum([len(each.partitions) for each in topics]) <= FEW:
        return at_once(steps)
    return settle(steps)


def _few(transactions: Sequence[AddPartitionsToTxnTransaction]) -> bool:
    left = FEW
    for each in transactions:
        if left < len(each.topics):
            return False
        left -= sum([len(topic.partitions) for topic in each.topics])
    return left >= 0


def _for_client(
    coordinator: TransactionCoordinator,
    groups: GroupService,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Steps[Soon[AddPartitionsToTxnResponse]]:
    topics = request.v3_and_below_topics
    added = yield from _partitions(topics)

    def is_forbidden(topic: str) -> bool:
        return topic in INTERNAL_TOPICS or not context.allows(WRITE, TOPIC, topic)

    refused = yield from _refused(cache, added, is_forbidden)
    if refused:
        return (yield from _flat(topics, refused))
    response = yield from _flat(topics, ErrorCode.NONE)
    if request.group_id is not None:
        index = groups.partition_of(request.group_id)
        added[TopicPartition(CONSUMER_OFFSETS, index)] = None
    answer = coordinator.add_partitions(_addition(request, context, added))
    return map_answer(answer, lambda _: response)


def _addition(
    request: AddPartitionsToTxnRequest, context: RequestContext, added: Partitions
) -> AddPartitions:
    return AddPartitions(
        request.v3_and_below_transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        added,
        TV0,
        context.connection_id,
        context.owner,
    )


def again(
    coordinator: TransactionCoordinator,
    _groups: GroupService,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    response: AddPartitionsToTxnResponse,
) -> Repeat | RepeatByElement | None:
    """Serve a client of the older protocol, which adds the same partitions to each transaction, and
    leaders, whose questions about one id and the same partitions differ in the producer only.

    The coordinator decides each time, and the partitions have to be in the metadata.
    """
    if context.api_version >= BETWEEN_BROKERS_SINCE:
        return _verified_again(coordinator, cache, request, context.api_version, response)
    topics = request.v3_and_below_topics
    if request.group_id is not None or _any_refused(response.results_by_topic_v3_and_below):
        # The partition of a group follows from more than the metadata.
        return None
    added = _addition(request, context, at_once(_partitions(topics)))
    added = added._replace(partitions=tuple(added.partitions))
    return Repeat(coordinator.repeated(added).again, (added.producer, False))


def _any_refused(topics: Sequence[AddPartitionsToTxnTopicResult]) -> bool:
    return any(each.partition_error_code for topic in topics for each in topic.results_by_partition)


def _verified_again(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    version: int,
    response: AddPartitionsToTxnResponse,
) -> RepeatByElement | None:
    if (
        version != VERIFICATIONS.version
        or response.error_code
        or any(_any_refused(each.topic_results) for each in response.results_by_transaction)
    ):
        return None
    known = [_question(coordinator, each) for each in request.transactions]
    return RepeatByElement(partial(_verify_again, coordinator, cache), VERIFICATIONS, known)


def _question(
    coordinator: TransactionCoordinator, asked: AddPartitionsToTxnTransaction
) -> _Question:
    partitions = tuple(at_once(_partitions(asked.topics)))
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return VerifyPartitions(asked.transactional_id, producer, partitions, asked.principal), None
    added = AddPartitions(
        asked.transactional_id, producer, partitions, TV2, principal=asked.principal
    )
    return added, coordinator.repeated(added)


def _verify_again(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    asked: Sequence[tuple[_Question, tuple[int, int]]],
    now_ms: int,
) -> Sequence[tuple[()]] | None:
    """Have the coordinator add or verify the partitions, if it certainly refuses none."""
    questions: list[VerifyPartitions] = []
    for (question, added), producer in asked:
        if isinstance(question, VerifyPartitions):
            if None in [cache.partition(*each) for each in question.partitions]:
                return None
            questions.append(question._replace(producer=Producer(*producer)))
        elif len(asked) > 1:
            # One of them may be refused when others are added already.
            return None
        else:
            assert added is not None
            return None if added.again((Producer(*producer), False), now_ms) is None else [()]
    coordinator.verify_all(questions)
    return [()] * len(questions)


def _refused(
    cache: MetadataCache, partitions: Partitions, is_forbidden: Callable[[str], bool]
) -> Steps[Answers]:
    """Return the errors of a request of which a partition cannot be added; {} if all can."""
    answers: Answers = {}
    any_refused = False
    for each in partitions:
        yield None
        answers[each] = _refusal(cache, each, is_forbidden) or ErrorCode.OPERATION_NOT_ATTEMPTED
        any_refused = any_refused or answers[each] is not ErrorCode.OPERATION_NOT_ATTEMPTED
    return answers if any_refused else {}


def _refusal(
    cache: MetadataCache, partition: TopicPartition, is_forbidden: Callable[[str], bool]
) -> ErrorCode:
    if is_forbidden(partition[0]):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if cache.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _for_brokers(
    coordinator: TransactionCoordinator, cache: MetadataCache, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Steps[AddPartitionsToTxnResponse]:
    transactions = request.transactions
    asking = _ask(coordinator, cache, transactions)
    if len(transactions) > FEW or not _few(transactions):
        return _once_added(request, asking)
    answers = at_once(asking)
    if any(isinstance(each, asyncio.Future) for each in answers):
        return _once_added(request, answers)
    return at_once(_answer(request, answers))


def _ask(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    transactions: Sequence[AddPartitionsToTxnTransaction],
) -> Steps[list[Asked]]:
    answers = []
    for each in transactions:
        yield None
        answers.append((yield from _for_leader(coordinator, cache, each)))
    return answers


def _for_leader(
    coordinator: TransactionCoordinator, cache: MetadataCache, asked: AddPartitionsToTxnTransaction
) -> Steps[Asked]:
    partitions = yield from _partitions(asked.topics)
    # Leaders of `__consumer_offsets` ask too.
    refused = yield from _refused(cache, partitions, _NEVER_WRITTEN_TO.__contains__)
    if refused:
        return refused
    producer = Producer(asked.producer_id, asked.producer_epoch)
    try:
        if asked.verify_only:
            question = asked.transactional_id, producer, partitions, asked.principal
            return coordinator.verify(VerifyPartitions(*question))
        added = coordinator.add_partitions(
            AddPartitions(
                asked.transactional_id, producer, partitions, TV2, principal=asked.principal
            ),
            waits=False,
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if added is None else added


def _once_added(
    request: AddPartitionsToTxnRequest, asked: list[Asked] | Steps[list[Asked]]
) -> Steps[AddPartitionsToTxnResponse]:
    answers = yield from settle(asked)
    waiting = [each for each in answers if isinstance(each, asyncio.Future)]
    if waiting:
        yield in_task(_await_all(waiting))
    return (yield from _answer(request, answers))


async def _await_all(added: list[asyncio.Future[None]]) -> None:
    # Together: a transaction whose record is slow must not hold up the others.
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            for each in added:
                with suppress(KafkaError):
                    await each


def _answer(
    request: AddPartitionsToTxnRequest, answers: list[Asked]
) -> Steps[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for asked, found in zip(request.transactions, answers, strict=True):
        yield None
        known = _outcome(found) if isinstance(found, asyncio.Future) else found
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=(yield from _results(asked.topics, known)),
            )
        )
    return response


def _outcome(added: asyncio.Future[None]) -> ErrorCode:
    if not added.done() or added.cancelled():
        ignore(added)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        added.result()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _partitions(topics: Topics) -> Steps[Partitions]:
    partitions: Partitions = {}
    for topic in topics:
        yield None
        for index in topic.partitions:
            yield None
            partitions[TopicPartition(topic.name, index)] = None
    return partitions


def _flat(topics: Topics, answers: Answers | ErrorCode) -> Steps[AddPartitionsToTxnResponse]:
    results = yield from _results(topics, answers)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _results(
    topics: Topics, answers: Answers | ErrorCode
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """Return one result for each partition, with its own error or that of all."""
    own, general = ({}, answers) if isinstance(answers, ErrorCode) else (answers, ErrorCode.NONE)

    def result(topic: str, index: int) -> AddPartitionsToTxnPartitionResult:
        code = own.get(TopicPartition(topic, index), general)
        return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)

    results = []
    for topic in topics:
        yield None
        partitions = yield from in_steps(partial(result, topic.name), topic.partitions)
        results.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions)
        )
    return results


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, version: int
) -> Steps[AddPartitionsToTxnResponse] | AddPartitionsToTxnResponse:
    """Return the error for every partition of a client, for the whole request of a broker."""
    if version >= BETWEEN_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    return _flat(request.v3_and_below_topics, code)
