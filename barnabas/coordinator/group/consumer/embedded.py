"""The embedded protocol of classic consumers, as members of consumer groups speak it."""

from collections.abc import Iterable, Mapping

from barnabas.coordinator.group.consumer.topics import Topics
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    read_versioned,
    version_of,
    write_versioned,
)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription. Raises ProtocolError."""
    return read_versioned(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment; empty data is an empty one. Raises ProtocolError."""
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return read_versioned(ConsumerProtocolAssignment, data)


def write_assignment(
    topics: Topics, partitions: Mapping[bytes, Iterable[int]], subscription: bytes
) -> bytes:
    """Encode an assignment, by topic id, in the version of the member's subscription; in version 0
    if that cannot be read."""
    named = ((topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=name, partitions=sorted(indexes))
            for name, indexes in named
            if name is not None
        ]
    )
    try:
        version = version_of(subscription)
    except ProtocolError:
        # A member tells what it subscribes to in each of its protocols; one of them was read.
        version = 0
    return write_versioned(assignment, version)


def by_id(
    topics: Topics, named: Iterable[AssignedPartitions | OwnedPartitions]
) -> dict[bytes, list[int]]:
    """Return partitions by the ids of those topics that exist."""
    found: dict[bytes, list[int]] = {}
    for each in named:
        topic = topics.find(each.topic)
        if topic is not None:
            found.setdefault(topic.topic_id, []).extend(each.partitions)
    return found
