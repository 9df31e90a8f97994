"""AddPartitionsToTxn requests between brokers, put together from bytes that repeat.

The questions about one transactional id and the same partitions differ in the producer only. The
rest is encoded once, and so is the answer if no partition is refused.
"""

from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

from barnabas.broker.transactions.marker_frames import (
    MOST,
    NO_TAGS,
    REMEMBERED,
    Frames,
    count_of,
)
from barnabas.broker.transactions.verification_request import VerificationRequest
from barnabas.protocol.codec import encode
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

VERSION: Final = 5
PRODUCER: Final = Struct(">qh")
"""Producer id and epoch."""
ANSWER_HEAD: Final = bytes(6)
"""The fields of an answer before its results: no throttle time and no error."""


def request_of(requests: Iterable[VerificationRequest]) -> AddPartitionsToTxnRequest:
    """Return a request with one entry for each transaction."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.epoch,
                verify_only=not each.adds,
                topics=_topics(each.partitions),
                principal=each.principal,
            )
            for each in requests
        ]
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return [AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in indexes.items()]


def id_bytes(transactional_id: str) -> bytes:
    """Return the transactional id as a request has it, at most 127 bytes with its length; b"" if
    it is longer."""
    content = transactional_id.encode()
    return count_of(len(content)) + content if len(content) < MOST else b""


def transaction_bytes(
    transactional_id: str, request: AddPartitionsToTxnRequest
) -> tuple[bytes, bytes]:
    """Return the bytes of the only transaction of a request behind the producer, and those of its
    result without an error."""
    body = encode(request, VERSION)
    first = len(count_of(1)) + len(id_bytes(transactional_id)) + PRODUCER.size
    (asked,) = request.transactions
    result = AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index)
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
    answer = encode(AddPartitionsToTxnResponse(results_by_transaction=[result]), VERSION)
    return (
        body[first : -len(NO_TAGS)],
        answer[len(ANSWER_HEAD) + len(count_of(1)) : -len(NO_TAGS)],
    )


class VerificationFrames:
    """The requests to one broker."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[bytes, bytes, bytes]] = {}

    def of(self, requests: Collection[VerificationRequest]) -> Frames | None:
        """Return the request with one entry for each transaction; None if it is to be encoded."""
        if len(requests) > MOST:
            return None
        count = count_of(len(requests))
        asked, accepted = [count], [ANSWER_HEAD, count]
        for each in requests:
            transactional_id, producer, partitions, adds, principal = each
            key = (transactional_id, tuple(partitions), adds, principal)
            known = self._known.get(key)
            if known is None:
                start = id_bytes(transactional_id)
                if not start:
                    return None
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                known = start, *transaction_bytes(transactional_id, request_of([each]))
                self._known[key] = known
            asked += known[0], PRODUCER.pack(*producer), known[1]
            accepted.append(known[2])
        asked.append(NO_TAGS)
        accepted.append(NO_TAGS)
        return Frames(b"".join(asked), b"".join(accepted), API.response, VERSION)
