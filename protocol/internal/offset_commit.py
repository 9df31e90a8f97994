"""Committed offsets as records of `__consumer_offsets`."""

from barnabas.protocol.schema import field, message, since, tagged
from barnabas.protocol.types import Int32, Int64, String, Uuid, ZERO_UUID


@message
class OffsetCommitKey:
    group: String = field(default="")
    topic: String = field(default="")
    partition: Int32 = field(default=0)


@message
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)
