"""What a member of a group is told of its partitions: Kafka's ConsumerRebalanceListener."""

from collections.abc import Sequence

from barnabas.protocol.topic_partition import TopicPartition


class RebalanceListener:
    """Override what matters; all is called from `GroupMember.ensure_joined` and `leave`."""

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on, besides those that a cooperative member has kept."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These go to others once this returns: the last moment to commit what was read."""

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group took these away unasked: others may read them, and no commit would count."""
