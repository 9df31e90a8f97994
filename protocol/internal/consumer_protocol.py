"""What consumers put into JoinGroup and SyncGroup, behind an int16 of its version.

v1 partitions owned so far (KIP-429); v2 generation (KIP-792); v3 rack (KIP-881). Never flexible.
"""

from barnabas.protocol.schema import Schema, field, message, since
from barnabas.protocol.types import Array, Int32, NullableBytes, NullableString, String


@message
class OwnedPartitions:
    """Partitions of one topic that the member held before the rebalance."""

    topic: String = since(1, default="")
    partitions: Array[Int32] = since(1, default_factory=list)


@message
class ConsumerProtocolSubscription:
    """What a member wants; `user_data` is the assignor's own."""

    topics: Array[String]
    user_data: NullableBytes = field(default=None)
    owned_partitions: Array[OwnedPartitions] = since(1, default_factory=list, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, default=None, ignorable=True)


@message
class AssignedPartitions:
    """Partitions of one topic that the member gets."""

    topic: String
    partitions: Array[Int32]


@message
class ConsumerProtocolAssignment:
    """What a member gets."""

    assigned_partitions: Array[AssignedPartitions]
    user_data: NullableBytes = field(default=None)


SUBSCRIPTION = Schema(ConsumerProtocolSubscription, range(4))
ASSIGNMENT = Schema(ConsumerProtocolAssignment, range(4))
