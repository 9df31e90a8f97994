"""The request of a partition leader to a transaction coordinator before the first record."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition

Answers = dict[TopicPartition, ErrorCode]


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
