"""Replay of the records of consumer groups: the only place where their logged state changes."""

from typing import Any

from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.group import (
    EPOCH_AT,
    FIRST_EPOCH,
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    ResolvedExpression,
)
from barnabas.coordinator.group.consumer.records import (
    CURRENT,
    EXPRESSION,
    GROUP,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    TOPICS,
    ConsumerGroupRecord,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.protocol.internal.consumer_group import ClassicMemberMetadata

_new = tuple.__new__
_ABSENT = ClassicMemberMetadata()
"""The part of a classic member in a record that has none."""


def replay(groups: dict[str, ConsumerGroup], record: ConsumerGroupRecord) -> None:
    """Apply a committed record."""
    kind, group_id, name, value = record
    group = groups.get(group_id)
    if value is None:
        if group is not None:
            _forget(groups, group, kind, name)
        return
    if kind == TOPICS:
        return
    if group is None:
        group = groups[group_id] = ConsumerGroup(group_id)
    if kind == CURRENT and name in group.members:
        group.move(_moved(group.members[name], value))
    elif kind in (CURRENT, MEMBER):
        change = _moved if kind == CURRENT else _subscribed
        group.put(change(group.members.get(name) or ConsumerMember(name), value))
    elif kind == TARGET:
        group.targets[name] = value if type(value) is dict else records.target_of(value)
    elif kind == GROUP:
        group.epoch, group.metadata_hash = records.epoch_of(value)
        group.changed()
    elif kind == TARGET_EPOCH:
        group.assignment_epoch, group.assigned_at_ms = records.epoch_of(value)
        group.changed()
    else:
        topics = frozenset(value.topics)
        group.expressions[name] = ResolvedExpression(topics, value.version, value.timestamp)


def _subscribed(member: ConsumerMember, value: Any) -> ConsumerMember:
    if type(value) is ConsumerMember:
        return _new(ConsumerMember, value[:EPOCH_AT] + member[EPOCH_AT:])
    classic = value.classic_member_metadata
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(value.subscribed_topic_names),
        expression=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None or classic == _ABSENT else classic,
    )


def _moved(member: ConsumerMember, value: Any) -> ConsumerMember:
    if type(value) is ConsumerMember:
        return _new(ConsumerMember, member[:EPOCH_AT] + value[EPOCH_AT:])
    epoch = value.member_epoch
    return member.moved(
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=records.state_of(value.state),
        assigned=records.partitions_of(value.assigned_partitions, epoch),
        revoking=records.partitions_of(value.partitions_pending_revocation, epoch),
    )


def _forget(groups: dict[str, ConsumerGroup], group: ConsumerGroup, kind: int, name: str) -> None:
    if kind == GROUP:
        del groups[group.group_id]
    elif kind == TARGET_EPOCH:
        group.assignment_epoch, group.assigned_at_ms = FIRST_EPOCH, 0
    elif kind == TARGET:
        group.targets.pop(name, None)
    elif kind == EXPRESSION:
        group.expressions.pop(name, None)
    elif kind == MEMBER:
        group.remove(name)
        group.sessions.pop(name, None)
    elif kind == CURRENT and name in group.members:
        group.move(
            group.members[name]._replace(
                epoch=0,
                previous_epoch=0,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                revoking=NO_PARTITIONS,
            )
        )
    group.changed()
