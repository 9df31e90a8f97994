"""Callbacks about the partitions of a group member."""

from collections.abc import Sequence

from barnabas.protocol.topic_partition import TopicPartition


class RebalanceListener:
    """Kafka's ConsumerRebalanceListener; override the methods that you need.

    They are called from `GroupMember.ensure_joined` and `GroupMember.leave`.
    """

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called with new partitions; a cooperative member keeps its other partitions."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before partitions are revoked: the last chance to commit their offsets."""

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called after the group has removed this member: commits would be refused."""
