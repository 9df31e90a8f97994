"""What a leader asks a transaction's coordinator before the first record of the transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition

Answers = dict[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """About partitions that one broker leads, and one producer."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    adds: bool
    """Whether the partitions shall join the transaction, or only be verified to be in it."""

    def all_told(self, code: ErrorCode) -> Answers:
        """The same for every partition."""
        return dict.fromkeys(self.partitions, code)
