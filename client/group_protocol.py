"""What members of a classic group tell each other through JoinGroup and SyncGroup."""

from collections.abc import Iterable

from barnabas.client.assignors import Subscription
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic


def read_consumer_protocol(cls: type, data: bytes) -> object:
    """A subscription or assignment in the version its first two bytes tell (at most our 3)."""
    if len(data) < 2:
        raise ProtocolError("a consumer's metadata is cut off")
    version = min(int.from_bytes(data[:2], "big"), 3)
    return decode(cls, version, data, 2)


def read_subscription(data: bytes) -> Subscription:
    """A member's subscription; ProtocolError if it is none."""
    value = read_consumer_protocol(ConsumerProtocolSubscription, data)
    assert isinstance(value, ConsumerProtocolSubscription)
    owned = [(row.topic, p) for row in value.owned_partitions for p in row.partitions]
    generation = value.generation_id
    if generation < 0 and value.user_data is not None and len(value.user_data) == 4:
        generation = int.from_bytes(value.user_data, "big", signed=True)
    return Subscription(value.topics, owned, generation)


def write_subscription(subscription: Subscription, version: int = 0) -> bytes:
    """From version 1 on with what is owned (KIP-429), from 2 on with the generation (KIP-792)."""
    owned = by_topic(subscription.owned)
    generation = subscription.generation if owned else -1
    value = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        # Leaders of before KIP-792 look for the generation here.
        user_data=generation.to_bytes(4, "big", signed=True) if version else None,
        owned_partitions=[OwnedPartitions(topic=t, partitions=ps) for t, ps in owned.items()],
        generation_id=generation,
    )
    return _write(value, version)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """What a member is assigned: nothing where the leader said nothing."""
    if not data:
        return []
    value = read_consumer_protocol(ConsumerProtocolAssignment, data)
    assert isinstance(value, ConsumerProtocolAssignment)
    return [(row.topic, p) for row in value.assigned_partitions for p in row.partitions]


def write_assignment(share: Iterable[TopicPartition]) -> bytes:
    """A member's assignment, in version 0: later ones say no more."""
    rows = by_topic(share).items()
    return _write(
        ConsumerProtocolAssignment(
            assigned_partitions=[AssignedPartitions(topic=t, partitions=ps) for t, ps in rows]
        ),
        0,
    )


def _write(value: object, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)
