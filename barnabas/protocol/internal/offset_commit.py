"""Committed offsets as records of `__consumer_offsets`: key and value each follow an int16.

The key's int16 is 0 or 1, both read in the same way; 1 is written. Values: v1 has a time of expiry,
which v2 dropped; v3 adds the leader epoch (KIP-320); v4 is flexible and has the topic id.
"""

from barnabas.protocol.schema import Schema, field, message, since, tagged
from barnabas.protocol.types import ZERO_UUID, Int32, Int64, String, Uuid


@message
class OffsetCommitKey:
    """The key: a group and a partition."""

    group: String = field(default="")
    topic: String = field(default="")
    partition: Int32 = field(default=0)


@message
class OffsetCommitValue:
    """The next offset to read, with times in ms since the epoch."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)


OFFSET_COMMIT_KEY = Schema(OffsetCommitKey, range(1))
OFFSET_COMMIT_VALUE = Schema(OffsetCommitValue, range(5), flexible=4)
