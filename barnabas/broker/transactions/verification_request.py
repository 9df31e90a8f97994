"""The request of a partition leader to a transaction coordinator before the first record."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.broker.transactions.request_batcher import Element, Framing
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.template import ByElement, Elements
from barnabas.protocol.topic_partition import TopicPartition, by_topic

Answers = dict[TopicPartition, ErrorCode]
VERSION: Final = 5
VERIFICATIONS: Final = ByElement(
    API,
    VERSION,
    Elements(API.request, VERSION, "transactions", "producer_id", "producer_epoch"),
    Elements(API.response, VERSION, "results_by_transaction"),
)
"""The questions about one transactional id and the same partitions differ in the producer only."""


class VerificationRequest(NamedTuple):
    """A request about one producer and the partitions that one broker leads."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    adds: bool
    """Whether to add the partitions to the transaction, or only to verify that they are in it."""
    principal: str | None = None
    """The principal of the client; None without an authorizer."""

    def all_with(self, code: ErrorCode) -> Answers:
        """Return the same code for every partition."""
        return dict.fromkeys(self.partitions, code)

    def question(self) -> AddPartitionsToTxnTransaction:
        """Return the request as a coordinator receives it."""
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            verify_only=not self.adds,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(self.partitions).items()
            ],
            principal=self.principal,
        )

    def accepted(self) -> AddPartitionsToTxnResult:
        """Return the coordinator's answer that refuses no partition."""
        results = [
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index) for index in indexes
                ],
            )
            for name, indexes in by_topic(self.partitions).items()
        ]
        return AddPartitionsToTxnResult(
            transactional_id=self.transactional_id, topic_results=results
        )


def framing() -> Framing[VerificationRequest]:
    """Return what puts requests to one coordinator together."""
    return Framing(VERIFICATIONS, _split, lambda each: (each.question(), each.accepted()))


def _split(request: VerificationRequest) -> Element:
    transactional_id, producer, partitions, adds, principal = request
    return Element((transactional_id, tuple(partitions), adds, principal), producer, ())
