"""The embedded consumer protocol of a classic group: subscriptions and assignments as bytes."""

from collections.abc import Iterable

from barnabas.client.groups.assignors import Subscription
from barnabas.protocol.internal.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    read_versioned,
    write_versioned,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic


def read_subscription(data: bytes) -> Subscription:
    """Decode the subscription of a member; raises ProtocolError if it is invalid."""
    value = read_versioned(ConsumerProtocolSubscription, data)
    owned = [TopicPartition(row.topic, p) for row in value.owned_partitions for p in row.partitions]
    generation = value.generation_id
    if generation < 0 and value.user_data is not None and len(value.user_data) == 4:
        generation = int.from_bytes(value.user_data, "big", signed=True)
    return Subscription(value.topics, owned, generation)


def write_subscription(subscription: Subscription, version: int = 0) -> bytes:
    """Encode a subscription: owned partitions since version 1 (KIP-429), generation since 2
    (KIP-792)."""
    owned = by_topic(subscription.owned)
    generation = subscription.generation if owned else -1
    value = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        # Group leaders without KIP-792 read the generation from here.
        user_data=generation.to_bytes(4, "big", signed=True) if version else None,
        owned_partitions=[OwnedPartitions(topic=t, partitions=ps) for t, ps in owned.items()],
        generation_id=generation,
    )
    return write_versioned(value, version)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Decode the assignment of a member; empty data is an empty assignment.

    Raises ProtocolError if it is invalid.
    """
    if not data:
        return []
    value = read_versioned(ConsumerProtocolAssignment, data)
    return [
        TopicPartition(row.topic, p) for row in value.assigned_partitions for p in row.partitions
    ]


def write_assignment(share: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment of a member in version 0; later versions have the same fields."""
    rows = by_topic(share).items()
    return write_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[AssignedPartitions(topic=t, partitions=ps) for t, ps in rows]
        ),
        0,
    )
