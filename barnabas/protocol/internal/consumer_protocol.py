"""The consumer protocol: member metadata and assignments inside JoinGroup and SyncGroup.

Each follows an int16 with its version. v1 adds owned partitions (KIP-429), v2 the generation
(KIP-792), v3 the rack (KIP-881). No version is flexible.
"""

from struct import Struct
from typing import Final, TypeVar

from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Schema, field, message, since
from barnabas.protocol.types import Array, Int32, NullableBytes, NullableString, String

M = TypeVar("M")
_VERSION: Final = Struct(">h")


@message
class OwnedPartitions:
    """Partitions of one topic that the member held before the rebalance."""

    topic: String = since(1, default="")
    partitions: Array[Int32] = since(1, default_factory=list)


@message
class ConsumerProtocolSubscription:
    """The subscription of a member; the assignor defines `user_data`."""

    topics: Array[String]
    user_data: NullableBytes = field(default=None)
    owned_partitions: Array[OwnedPartitions] = since(1, default_factory=list, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, default=None, ignorable=True)


@message
class AssignedPartitions:
    """Partitions of one topic that are assigned to the member."""

    topic: String
    partitions: Array[Int32]


@message
class ConsumerProtocolAssignment:
    """The partitions that are assigned to a member."""

    assigned_partitions: Array[AssignedPartitions]
    user_data: NullableBytes = field(default=None)


LAST_VERSION = 3
SUBSCRIPTION = Schema(ConsumerProtocolSubscription, range(LAST_VERSION + 1))
ASSIGNMENT = Schema(ConsumerProtocolAssignment, range(LAST_VERSION + 1))


def version_of(data: bytes) -> int:
    """Return the version of a subscription or assignment; raises ProtocolError.

    The protocol grows at its end: a later version is read as the last one that is known.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError("a consumer's metadata is cut off")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"a consumer's metadata has version {version}")
    return min(version, LAST_VERSION)


def read_versioned(cls: type[M], data: bytes) -> M:
    """Decode a subscription or assignment, which follows its version; raises ProtocolError."""
    return decode_prefix(cls, version_of(data), data, _VERSION.size)


def write_versioned(value: object, version: int) -> bytes:
    """Encode a subscription or assignment behind its version."""
    return _VERSION.pack(version) + encode(value, version)
