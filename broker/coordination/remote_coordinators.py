"""Asks transaction coordinators on other brokers (AddPartitionsToTxn v5, KIP-890).

One request to each broker is on its way, and whoever asks meanwhile goes with the next. A
transactional id waits there once: of two that ask in its name the older producer is fenced, and of
equals the one that came first has gone away.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas.broker.coordination.line import Asked, Line, asked
from barnabas.broker.coordination.question import Answers, Question
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import TRANSACTION_STATE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.topic_partition import TopicPartition

TRANSACTIONS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 10.0
"""Until an answer is given up. The coordinator itself answers sooner, whatever its followers do."""
_VERSION: Final = 5
_BEHIND: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Of a partition that is led here: the coordinator has yet to hear of its topic."""


class RemoteCoordinators:
    """The coordinators that this broker is not."""

    def __init__(
        self, broker_id: int, cache: MetadataCache, connect: Callable[[int], Asked]
    ) -> None:
        """`connect` gives a line of its own to another broker."""
        self._broker_id = broker_id
        self._cache = cache
        self._connect = connect
        self._lines: dict[int, _QuestionLine] = {}
        cache.on_change(self._metadata_changed)

    def ask(self, question: Question, index: int) -> "Answers | asyncio.Future[Answers]":
        """What the leader of a partition of `__transaction_state` says, in a future that never
        fails; NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE at once where there is nobody to ask."""
        known = self._cache.partition(TRANSACTION_STATE, index)
        if known is None or known.leader not in self._cache.brokers:
            return question.all_told(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if known.leader == self._broker_id:
            # Elected, but not told yet; or about to hear that it leads no more.
            return question.all_told(ErrorCode.NOT_COORDINATOR)
        line = self._lines.get(known.leader)
        if line is None:
            line = self._lines[known.leader] = _QuestionLine(self._connect(known.leader))
        return line.ask(question)

    def _metadata_changed(self) -> None:
        for broker_id, line in self._lines.items():
            if broker_id not in self._cache.brokers:
                line.peer.abort()

    async def close(self) -> None:
        """Whoever waits for an answer is told NETWORK_EXCEPTION."""
        await asyncio.gather(*(line.peer.close() for line in self._lines.values()))


class _Waiting(NamedTuple):
    question: Question
    answer: "asyncio.Future[Answers]"

    def tell(self, answers: Answers) -> None:
        # Whoever has gone away has cancelled it.
        if not self.answer.done():
            self.answer.set_result(answers)

    def tell_all(self, code: ErrorCode) -> None:
        self.tell(self.question.all_told(code))


class _QuestionLine:
    """Questions to one broker, by transactional id, in the order they came."""

    def __init__(self, peer: Asked) -> None:
        self.peer = peer
        self._waiting: dict[str, _Waiting] = {}
        self._line = Line(self._take, self._carry)

    def ask(self, question: Question) -> "asyncio.Future[Answers]":
        asking = _Waiting(question, asyncio.get_running_loop().create_future())
        older = self._waiting.get(question.transactional_id)
        if older is not None and older.question.producer.epoch > question.producer.epoch:
            asking.tell_all(ErrorCode.INVALID_PRODUCER_EPOCH)
            return asking.answer
        if older is not None:
            same = older.question.producer.epoch == question.producer.epoch
            older.tell_all(
                ErrorCode.NETWORK_EXCEPTION if same else ErrorCode.INVALID_PRODUCER_EPOCH
            )
        self._waiting[question.transactional_id] = asking
        self._line.due()
        return asking.answer

    def _take(self) -> list[_Waiting] | None:
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < TRANSACTIONS_PER_REQUEST:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            if not waiting.answer.done():
                batch.append(waiting)
        return batch or None

    async def _carry(self, batch: list[_Waiting]) -> None:
        answer = await asked(
            self.peer,
            API,
            _request(each.question for each in batch),
            version=_VERSION,
            timeout=TIMEOUT_S,
        )
        if answer is None:
            for waiting in batch:
                waiting.tell_all(ErrorCode.NETWORK_EXCEPTION)
        elif answer.error_code:
            for waiting in batch:
                waiting.tell_all(_of_all(ErrorCode.of(answer.error_code)))
        else:
            told = _answers(answer)
            for waiting in batch:
                waiting.tell(_complete(waiting.question, told))


def _request(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.epoch,
                verify_only=not each.adds,
                topics=_topics(each.partitions),
            )
            for each in questions
        ]
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return [AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in indexes.items()]


def _answers(answer: AddPartitionsToTxnResponse) -> dict[str, Answers]:
    return {
        result.transactional_id: {
            (topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


def _complete(question: Question, told: dict[str, Answers]) -> Answers:
    """Each partition's answer; what was left out has been lost."""
    answers = question.all_told(ErrorCode.NETWORK_EXCEPTION)
    for place, code in told.get(question.transactional_id, {}).items():
        if place in answers:
            answers[place] = ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _BEHIND else code
    return answers


def _of_all(code: ErrorCode) -> ErrorCode:
    """The error of a whole request, as the client of a leader may be told of it: that brokers do
    not trust each other is none of its business."""
    refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TXN_STATE if refused else code
