"""Records of `__consumer_offsets`, exactly as Apache Kafka 4.4 writes and reads them.

A key begins with an int16 that names its kind: 0 and 1 are committed offsets, 2 is a classic group,
3 to 8 and 16 are consumer groups. A value begins with an int16 version. Other kinds belong to
protocols that are not served here.
"""

from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.records import (
    KINDS,
    ConsumerGroupRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from barnabas.coordinator.group.group import (
    Group,
    Member,
    MemberMemory,
    MemoryShare,
    member_bytes,
)
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.group_metadata import (
    GROUP_METADATA_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from barnabas.protocol.internal.offset_commit import (
    OFFSET_COMMIT_VALUE,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.types import ZERO_UUID

_VERSION: Final = Struct(">h")
_OFFSET_KINDS: Final = (0, 1)
_OFFSET_KIND: Final = 1
_GROUP_KIND: Final = 2
_GROUP_VALUE_VERSION: Final = 3
_WITH_EXPIRY: Final = 1
_PLAIN: Final = 3
_WITH_TOPIC_ID: Final = 4


class OffsetAndMetadata(NamedTuple):
    """A committed offset. Times in ms since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    """Set by old clients, which have their own retention; -1 for the broker's."""
    topic_id: bytes = ZERO_UUID


class OffsetRecord(NamedTuple):
    """An offset was committed, or forgotten (None)."""

    group_id: str
    topic: str
    partition: int
    committed: OffsetAndMetadata | None


class GroupRecord(NamedTuple):
    """A generation of a group was settled, or the group was deleted (None)."""

    group_id: str
    value: GroupMetadataValue | None


GroupCoordinatorRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def group_record(
    group: Group, members: list[Member], assignments: dict[str, bytes], leader_id: str | None
) -> GroupRecord:
    """Return the record of a group with these members and assignments."""
    protocol = group.protocol_name or ""
    return GroupRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in members
            ],
        ),
    )


def restored(group_id: str, value: GroupMetadataValue, memory: MemberMemory) -> Group:
    """Return a group from its record: stable, or empty if it has no members."""
    group = Group(
        group_id,
        state_timestamp_ms=value.current_state_timestamp,
        state=GroupState.STABLE if value.members else GroupState.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for logged in value.members:
        protocols = ((value.protocol or "", logged.subscription),)
        member = Member(
            logged.member_id,
            logged.group_instance_id,
            logged.client_id,
            logged.client_host,
            session_timeout_ms=logged.session_timeout,
            # Values of version 0 have no such field.
            rebalance_timeout_ms=(
                logged.session_timeout if logged.rebalance_timeout < 0 else logged.rebalance_timeout
            ),
            protocols=protocols,
            memory=MemoryShare(memory).keep(member_bytes(protocols, logged.assignment)),
            assignment=logged.assignment,
        )
        group.restore(member)
    group.read_subscriptions()
    return group


def encode_record(record: GroupCoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; a value of None is a tombstone."""
    if isinstance(record, ConsumerGroupRecord):
        return encode_consumer_record(record)
    if isinstance(record, GroupRecord):
        key = _versioned(_GROUP_KIND, GroupMetadataKey(group=record.group_id), 0)
        if record.value is None:
            return key, None
        return key, _versioned(_GROUP_VALUE_VERSION, record.value, _GROUP_VALUE_VERSION)
    group_id, topic, partition, committed = record
    offset_key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    key = _versioned(_OFFSET_KIND, offset_key, 0)
    if committed is None:
        return key, None
    version = _WITH_TOPIC_ID if committed.topic_id != ZERO_UUID else _PLAIN
    if committed.expire_timestamp >= 0:
        version = _WITH_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    return key, _versioned(version, value, version)


def decode_record(key: bytes, value: bytes | None) -> GroupCoordinatorRecord | None:
    """Return the record; None for kinds that are not served here. Raises ProtocolError.

    Bytes behind the known fields are skipped, as in Kafka.
    """
    kind = _version(key)
    if kind in _OFFSET_KINDS:
        known = decode_prefix(OffsetCommitKey, 0, key, _VERSION.size)
        return OffsetRecord(known.group, known.topic, known.partition, _committed(value))
    if kind == _GROUP_KIND:
        group_id = decode_prefix(GroupMetadataKey, 0, key, _VERSION.size).group
        return GroupRecord(group_id, None if value is None else _group_value(value))
    if kind in KINDS:
        return decode_consumer_record(kind, key, value)
    return None


def _committed(value: bytes | None) -> OffsetAndMetadata | None:
    if value is None:
        return None
    version = _known(value, OFFSET_COMMIT_VALUE.versions)
    stored = decode_prefix(OffsetCommitValue, version, value, _VERSION.size)
    return OffsetAndMetadata(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )


def _group_value(value: bytes) -> GroupMetadataValue:
    version = _known(value, GROUP_METADATA_VALUE.versions)
    return decode_prefix(GroupMetadataValue, version, value, _VERSION.size)


def _versioned(number: int, body: object, version: int) -> bytes:
    return _VERSION.pack(number) + encode(body, version)


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("a record without its version")
    number: int = _VERSION.unpack_from(data)[0]
    return number


def _known(value: bytes, versions: range) -> int:
    version = _version(value)
    if version not in versions:
        raise ProtocolError(f"a value of version {version}, which is newer than this broker")
    return version
