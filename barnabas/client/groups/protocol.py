"""The embedded consumer protocol of a classic group: subscriptions and assignments as bytes."""

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeVar

from barnabas.client.groups.assignors import Subscription
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.consumer_protocol import (
    LAST_VERSION,
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic

M = TypeVar("M")
_VERSION: Final = Struct(">h")


def _read(cls: type[M], data: bytes) -> M:
    """Decode a subscription or assignment, which follows its version.

    The protocol grows at its end: a later version is read as the last one that is known.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError("a consumer's metadata is cut off")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"a consumer's metadata has version {version}")
    return decode_prefix(cls, min(version, LAST_VERSION), data, _VERSION.size)


def read_subscription(data: bytes) -> Subscription:
    """Decode the subscription of a member; raises ProtocolError if it is invalid."""
    value = _read(ConsumerProtocolSubscription, data)
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
    return _write(value, version)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Decode the assignment of a member; empty data is an empty assignment.

    Raises ProtocolError if it is invalid.
    """
    if not data:
        return []
    value = _read(ConsumerProtocolAssignment, data)
    return [
        TopicPartition(row.topic, p) for row in value.assigned_partitions for p in row.partitions
    ]


def write_assignment(share: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment of a member in version 0; later versions have the same fields."""
    rows = by_topic(share).items()
    return _write(
        ConsumerProtocolAssignment(
            assigned_partitions=[AssignedPartitions(topic=t, partitions=ps) for t, ps in rows]
        ),
        0,
    )


def _write(value: object, version: int) -> bytes:
    return _VERSION.pack(version) + encode(value, version)
