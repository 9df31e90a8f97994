"""The fast path of AddPartitionsToTxn between brokers: questions of a leader that repeat.

The questions about one transactional id and the same partitions differ in the producer only. The
rest is remembered, with the bytes of the result. The coordinator decides each time. What may change
is asked for each time too: the partitions in the metadata, the rules of the authorizer, and whether
each answer is certain.
"""

from typing import Any, Final, NamedTuple

from barnabas.broker.fast_paths.entries import FEW, EntriesFastPath, place_of_body
from barnabas.broker.fast_paths.wire import answer_header
from barnabas.broker.handlers.add_partitions_to_txn import API, Parts
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.broker.transactions.marker_frames import NO_TAGS
from barnabas.broker.transactions.verification_frames import (
    ANSWER_HEAD,
    PRODUCER,
    VERSION,
    id_bytes,
    transaction_bytes,
)
from barnabas.coordinator.transaction.metadata import TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

ALTERNATIVES: Final = 4
"""The questions about one transactional id that are remembered."""


class _Known(NamedTuple):
    """A question that the connection has asked."""

    behind: bytes
    """The bytes of the transaction behind the producer."""
    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    adds: bool
    principal: str | None
    result: bytes
    """The bytes of the result if no partition is refused."""


class VerificationsFastPath(EntriesFastPath[list[_Known]]):
    """The fast path of one connection. Questions are known by the bytes of the transactional id."""

    def __init__(self, parts: Parts, version: int) -> None:
        super().__init__(version)
        self._parts = parts
        self._answer_head = answer_header(API, version) + ANSWER_HEAD

    def serve(self, frame: memoryview, _received_ms: int) -> list[Part] | None:
        """Answer questions that are certainly answered without an error, else return None."""
        data = bytes(frame)
        pos, end = self._begin(data), len(data)
        if not pos:
            return None
        count = data[pos] - 1
        asked: list[tuple[_Known, Producer]] = []
        results = [self._answer_head, data[pos : pos + 1]]
        pos += 1
        for _ in range(count):
            if pos >= end:
                return None
            producer_at = pos + data[pos]
            pos, key = producer_at + PRODUCER.size, data[pos:producer_at]
            known = self._question(key, data, pos)
            if known is None:
                return None
            asked.append((known, Producer(*PRODUCER.unpack_from(data, producer_at))))
            results.append(known.result)
            pos += len(known.behind)
        if data[pos:] != NO_TAGS or not self._answers(asked):
            return None
        results.append(NO_TAGS)
        return self._answer(data, results)

    def _question(self, key: bytes, data: bytes, pos: int) -> _Known | None:
        for known in self._known.get(key, ()):
            if data.startswith(known[0], pos):
                return known
        return None

    def _answers(self, asked: list[tuple[_Known, Producer]]) -> bool:
        """Have the coordinator add or verify the partitions, if it certainly refuses none."""
        partition_of = self._parts.cache.partition
        for known, _ in asked:
            for topic, index in known.partitions:
                if partition_of(topic, index) is None:
                    return False
        transactions = self._parts.transactions
        if asked[0][0].adds:
            if len(asked) > 1:
                # One of them may be refused when others are added already.
                return False
            ((known, producer),) = asked
            return transactions.add_partitions_at_once(
                AddPartitions(
                    known.transactional_id,
                    producer,
                    known.partitions,
                    TV2,
                    principal=known.principal,
                )
            )
        if any(known.adds for known, _ in asked):
            return False
        return transactions.verify_at_once(
            [
                VerifyPartitions(
                    known.transactional_id, producer, known.partitions, known.principal
                )
                for known, producer in asked
            ]
        )

    def learn(
        self,
        frame: memoryview,
        request: AddPartitionsToTxnRequest,
        context: RequestContext,
        response: AddPartitionsToTxnResponse,
    ) -> None:
        """Remember the questions of a request of which no partition was refused."""
        self._credit += 1
        if self._version != VERSION or response.error_code or len(request.transactions) > FEW:
            return
        body_at = place_of_body(frame, request, VERSION)
        if not body_at:
            return
        if any(
            each.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        ):
            return
        found = [(id_bytes(each.transactional_id), _known(each)) for each in request.transactions]
        if any(not key or known is None for key, known in found):
            return
        if not self._has_room(len(found)):
            return
        for key, known in found:
            assert known is not None
            others = [each for each in self._known.get(key, ()) if each.behind != known.behind]
            self._known[key] = [known, *others[: ALTERNATIVES - 1]]
        self._remember(frame, body_at, context)


def _known(asked: Any) -> _Known | None:
    """Return what there is to know of a question, None if it has too many partitions."""
    partitions = {
        TopicPartition(topic.name, index): None
        for topic in asked.topics
        for index in topic.partitions
    }
    if len(partitions) > FEW:
        return None
    alone = AddPartitionsToTxnRequest(transactions=[asked])
    behind, result = transaction_bytes(asked.transactional_id, alone)
    return _Known(
        behind,
        asked.transactional_id,
        tuple(partitions),
        not asked.verify_only,
        asked.principal,
        result,
    )
