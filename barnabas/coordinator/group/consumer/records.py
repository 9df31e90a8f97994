"""The records of consumer groups: how `__consumer_offsets` holds them, as Kafka 4.4 does.

A value of None is a tombstone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from barnabas.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    ResolvedExpression,
    Target,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.consumer_group import (
    VALUES,
    ConsumerGroupKey,
    ConsumerGroupMemberKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentTopicPartitions,
)
from barnabas.protocol.schema import Message
from barnabas.protocol.template import COMPACT_LENGTH

GROUP: Final = 3
TOPICS: Final = 4
"""Written before Kafka 4.1 only: the topics of a group. Deleted with the group."""
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
EXPRESSION: Final = 16

_OF_MEMBER: Final = (MEMBER, TARGET, CURRENT)
_new = tuple.__new__
_STATES: Final = {int(each): each for each in MemberState}
_NAMED: Final = (*_OF_MEMBER, EXPRESSION)
KINDS: Final = (GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, EXPRESSION)


class LoggedEpoch(NamedTuple):
    """The epoch of a group with the hash of its topics, or that of its target assignment with the
    time at which it was computed."""

    epoch: int
    detail: int


class ConsumerGroupRecord(NamedTuple):
    """A record of a consumer group.

    Attributes:
        name: the member id, or the expression; "" in a record of the whole group.
        value: a message of `internal/consumer_group.py`. A decision gives what is replayed in its
            place: a `ConsumerMember`, a `Target` or a `LoggedEpoch`.
    """

    kind: int
    group_id: str
    name: str
    value: Any


def tombstone(kind: int, group_id: str, name: str = "") -> ConsumerGroupRecord:
    """Return the record that deletes the one with the same key."""
    return ConsumerGroupRecord(kind, group_id, name, None)


def deletion(group: ConsumerGroup) -> Iterator[ConsumerGroupRecord]:
    """Yield the records that delete a group with its members."""
    group_id = group.group_id
    for kind in (CURRENT, TARGET):
        yield from (tombstone(kind, group_id, member_id) for member_id in group.members)
    yield tombstone(TARGET_EPOCH, group_id)
    yield from (tombstone(MEMBER, group_id, member_id) for member_id in group.members)
    yield from (tombstone(EXPRESSION, group_id, text) for text in group.expressions)
    yield from (tombstone(kind, group_id) for kind in (TOPICS, GROUP))


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    """Return the record of a group's epoch."""
    return _new(ConsumerGroupRecord, (GROUP, group_id, "", LoggedEpoch(epoch, metadata_hash)))


def subscription(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of a member without its partitions."""
    return _new(ConsumerGroupRecord, (MEMBER, group_id, member.member_id, member))


def target_epoch(group_id: str, epoch: int, timestamp_ms: int = 0) -> ConsumerGroupRecord:
    """Return the record of the epoch of the target assignment."""
    return _new(ConsumerGroupRecord, (TARGET_EPOCH, group_id, "", LoggedEpoch(epoch, timestamp_ms)))


def target(
    group_id: str, member_id: str, partitions: Mapping[bytes, Iterable[int]]
) -> ConsumerGroupRecord:
    """Return the record of a member's target, given as indexes by topic id."""
    value = {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
    return _new(ConsumerGroupRecord, (TARGET, group_id, member_id, value))


def current(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of a member's epoch and partitions."""
    return _new(ConsumerGroupRecord, (CURRENT, group_id, member.member_id, member))


def expression(group_id: str, text: str, resolved: ResolvedExpression) -> ConsumerGroupRecord:
    """Return the record of the topics that an expression matches."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return ConsumerGroupRecord(EXPRESSION, group_id, text, value)


def partitions_of(listed: list[CurrentTopicPartitions], member_epoch: int) -> Partitions:
    """Return the partitions of a member's record; those of a record without their epochs, of Kafka
    before 4.3, are as old as the member's, and 0 for a static member that is away."""
    found: dict[bytes, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs
        if not epochs or len(epochs) != len(each.partitions):
            epochs = [max(member_epoch, 0)] * len(each.partitions)
        found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


def epoch_of(value: Any) -> LoggedEpoch:
    """Return the epoch of a record, of a group or of its target assignment."""
    if type(value) is LoggedEpoch:
        return value
    if isinstance(value, ConsumerGroupMetadataValue):
        return LoggedEpoch(value.epoch, value.metadata_hash)
    return LoggedEpoch(value.assignment_epoch, value.assignment_timestamp)


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Target:
    """Return the target of a record."""
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def state_of(number: int) -> MemberState:
    """Return the state of a record."""
    return _STATES.get(number, MemberState.UNKNOWN)


# -- bytes -----------------------------------------------------------------------------------------

_VERSION_0: Final = b"\0\0"
_LENGTH: Final = Struct(">h")
_EPOCH: Final = Struct(">2xi").pack
_DETAIL: Final = Struct(">3sq").pack
_TIMEOUT: Final = Struct(">i").pack
_STEP: Final = Struct(">2xiib").pack
_NO_TAGS: Final = b"\0"
_NULL: Final = b"\0"
_FIRST_TAG: Final = b"\1\0"
_LONG_TAG: Final = _FIRST_TAG + b"\x08"
_NO_CLASSIC_PART: Final = _FIRST_TAG + b"\1" + _NULL


def encode_consumer_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value. Raises ProtocolError."""
    kind, group_id, name, value = record
    key = _key(kind, group_id, name)
    if value is None:
        return key, None
    if isinstance(value, Message):
        return key, _VERSION_0 + encode(value, 0)
    try:
        return key, _ENCODERS[kind](value)
    except (StructError, UnicodeEncodeError) as error:
        raise ProtocolError(f"a value of kind {kind}: {error}") from error


# The values that decisions give, without a message, which would cost four times as much.


def _encode_epoch(value: LoggedEpoch) -> bytes:
    epoch, detail = value
    return _EPOCH(epoch) + (_DETAIL(_LONG_TAG, detail) if detail else _NO_TAGS)


def _encode_subscription(member: ConsumerMember) -> bytes:
    if member.classic is not None:
        return _VERSION_0 + encode(_with_classic_part(member), 0)
    return b"".join(
        (
            _VERSION_0,
            _text(member.instance_id),
            _text(member.rack_id),
            _text(member.client_id),
            _text(member.client_host),
            COMPACT_LENGTH(len(member.topics) + 1),
            *map(_text, member.topics),
            _text(member.expression),
            _TIMEOUT(member.rebalance_timeout_ms),
            _text(member.assignor),
            _NO_CLASSIC_PART,
        )
    )


def _with_classic_part(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.expression,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=member.classic,
    )


def _encode_target(target: Target) -> bytes:
    parts = [_VERSION_0, COMPACT_LENGTH(len(target) + 1)]
    for topic_id, indexes in target.items():
        count = len(indexes)
        parts += topic_id, COMPACT_LENGTH(count + 1), _ints(count)(*sorted(indexes)), _NO_TAGS
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _encode_current(member: ConsumerMember) -> bytes:
    parts = [_STEP(member.epoch, member.previous_epoch, member.state)]
    for partitions in (member.assigned, member.revoking):
        parts.append(COMPACT_LENGTH(len(partitions) + 1))
        for topic_id, epochs in partitions.items():
            indexes = sorted(epochs)
            count = len(indexes)
            size, pack = COMPACT_LENGTH(count + 1), _ints(count)
            parts += topic_id, size, pack(*indexes)
            if count:
                told = size + pack(*[epochs[index] for index in indexes])
                parts += _FIRST_TAG, COMPACT_LENGTH(len(told)), told
            else:
                parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


_KINDS: Final = {kind: _LENGTH.pack(kind) for kind in KINDS}
"""The beginning of a key."""
_ENCODERS: Final[Mapping[int, Callable[[Any], bytes]]] = {
    GROUP: _encode_epoch,
    MEMBER: _encode_subscription,
    TARGET_EPOCH: _encode_epoch,
    TARGET: _encode_target,
    CURRENT: _encode_current,
}


def _text(text: str | None) -> bytes:
    if text is None:
        return _NULL
    data = text.encode()
    return COMPACT_LENGTH(len(data) + 1) + data


@lru_cache(256)
def _ints(count: int) -> Callable[..., bytes]:
    return Struct(f">{count}i").pack


def _key(kind: int, group_id: str, name: str) -> bytes:
    """Return a key without its message, which would cost four times as much."""
    try:
        if kind in _NAMED:
            return _KINDS[kind] + _sized(group_id) + _sized(name)
        return _KINDS[kind] + _sized(group_id)
    except (StructError, UnicodeEncodeError) as error:
        raise ProtocolError(f"a key of kind {kind}: {error}") from error


@lru_cache(64)
def _sized(text: str) -> bytes:
    """Return a text with its length: the records of a step have the same group and member."""
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def decode_consumer_record(kind: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """Return the record of one of `KINDS`. Raises ProtocolError.

    Bytes behind the known fields are skipped, as in Kafka.
    """
    read: Callable[[type[Any]], Any] = partial(_read, key)
    name = ""
    if kind in _OF_MEMBER:
        of_member = read(ConsumerGroupMemberKey)
        group_id, name = of_member.group_id, of_member.member_id
    elif kind == EXPRESSION:
        of_expression = read(ConsumerGroupRegularExpressionKey)
        group_id, name = of_expression.group_id, of_expression.regular_expression
    else:
        group_id = read(ConsumerGroupKey).group_id
    if value is not None and value[:2] != _VERSION_0:
        raise ProtocolError(f"a value of version {value[:2]!r}, which is newer than this broker")
    known = None if value is None else _read(value, VALUES[kind].cls)
    return ConsumerGroupRecord(kind, group_id, name, known)


def _read(data: bytes, cls: type[Any]) -> Any:
    return decode_prefix(cls, 0, data, len(_VERSION_0))
