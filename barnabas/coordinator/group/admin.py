"""Groups and offsets as administrators and sweeps see them: describe, list, delete, expire."""

from collections.abc import Iterable, Mapping

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, Member, Protocols, metadata
from barnabas.coordinator.group.records import GroupCoordinatorRecord, GroupRecord
from barnabas.coordinator.group.states import CLASSIC, CONSUMER, GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.steps import Steps


def delete_offsets(
    table: GroupTable, group_id: str, topics: Mapping[str, Iterable[int]], now: Instant
) -> GroupDecision[frozenset[str]]:
    """Delete offsets of partitions by topic (KIP-496); answered with the topics to which a member
    subscribes, which keep theirs.

    Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = table.consumers.get(group_id) or table.require(group_id)
    if (
        isinstance(group, Group)
        and group.state is not GroupState.EMPTY
        and not group.uses_consumer_protocol
    ):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    draft = Draft(table, now)
    subscribed = frozenset(filter(group.is_subscribed, topics))

    def forget() -> Steps[None]:
        yield from draft.collect(
            tombstone
            for topic in topics.keys() - subscribed
            for tombstone in table.offsets.forget(group_id, topic, topics[topic])
        )
        table.counts.deleted += len(draft.records)

    return draft.decision(subscribed, forget())


def topics_deleted(
    table: GroupTable, group_id: str, topics: Mapping[str, bytes], now: Instant
) -> GroupDecision[None]:
    """Delete a group's offsets of deleted topics, given by name and id."""
    draft = Draft(table, now)
    return draft.decision(None, draft.collect(table.offsets.forget_topics(group_id, topics)))


def expire(table: GroupTable, group_id: str, now: Instant) -> GroupDecision[None]:
    """Delete a group's expired offsets, and the group if it has no members and no offsets."""
    draft = Draft(table, now)
    group = table.consumers.get(group_id) or table.groups.get(group_id)
    if group is None:
        return draft.decision(None)
    retention_ms = table.settings.offsets_retention_ms
    expired = table.offsets.expired(group, now.wall_ms, retention_ms)

    def forget() -> Steps[None]:
        yield from draft.collect(expired)
        count = len(draft.records)
        table.counts.expired += count
        kept = sum(map(len, table.offsets.of_group(group_id).values())) - count
        if _is_empty(group) and not kept and group_id not in table.offsets.pending:
            draft.records += _deletion(group)

    return draft.decision(None, forget())


def delete(table: GroupTable, group_id: str, now: Instant) -> GroupDecision[None]:
    """Delete an empty group with its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = table.consumers.get(group_id) or table.require(group_id)
    if group.members if isinstance(group, ConsumerGroup) else group.state is not GroupState.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    draft = Draft(table, now)

    def forget() -> Steps[None]:
        yield from draft.collect(table.offsets.forget_all(group_id))
        draft.records += _deletion(group)

    return draft.decision(None, forget())


def _is_empty(group: Group | ConsumerGroup) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY and not group.pending_joins


def _deletion(group: Group | ConsumerGroup) -> list[GroupCoordinatorRecord]:
    """Return the records that delete an empty group without its offsets."""
    if isinstance(group, Group):
        return [GroupRecord(group.group_id, None)]
    return [*records.deletion(group)]


def describe(table: GroupTable, group_id: str) -> Steps[DescribedGroup]:
    """Return the steps that describe a group as it is now; raises GROUP_ID_NOT_FOUND."""
    group = table.require(group_id)
    stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if stable else ""
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[],
    )
    present = [(each, each.protocols, each.assignment) for each in group.members.values()]
    return _describe_members(described, present, protocol if stable else None)


def _describe_members(
    described: DescribedGroup,
    present: Iterable[tuple[Member, Protocols, bytes]],
    protocol: str | None,
) -> Steps[DescribedGroup]:
    for member, protocols, assignment in present:
        yield None
        described.members.append(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else metadata(protocols, protocol),
                member_assignment=assignment,
            )
        )
    return described


def listing(
    groups: Iterable[Group | ConsumerGroup], states: frozenset[str], types: frozenset[str]
) -> Steps[list[ListedGroup]]:
    """List the groups in these states and of these types, in lower case; an empty set is all."""
    listed: list[ListedGroup] = []
    for group in groups:
        yield None
        group_type = CLASSIC if isinstance(group, Group) else CONSUMER
        if types and group_type not in types:
            continue
        # A dead one was deleted since the first step.
        if group.state is not GroupState.DEAD and (
            not states or group.state.value.lower() in states
        ):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=(
                        (group.protocol_type or "") if isinstance(group, Group) else CONSUMER
                    ),
                    group_state=group.state.value,
                    group_type=group_type,
                )
            )
    return listed
