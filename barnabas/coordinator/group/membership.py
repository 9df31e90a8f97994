"""Requests of members: SyncGroup, Heartbeat, LeaveGroup. They raise the KafkaError that Kafka
answers."""

from collections.abc import Sequence

from barnabas.coordinator.decision import DeferredAnswer, Instant
from barnabas.coordinator.group.consumer import classic
from barnabas.coordinator.group.consumer.sessions import leave_consumers
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, member_bytes
from barnabas.coordinator.group.rebalance import (
    assign,
    assigned,
    end_session,
    extend_session,
    members_changed,
    remove,
    synced,
)
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable, named, said
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(
    table: GroupTable, request: SyncGroupRequest, now: Instant
) -> GroupDecision[SyncGroupResponse]:
    """Take the leader's assignments, and give each member its own."""
    group = table.groups.get(request.group_id)
    if group is None:
        return classic.sync(table, request, now)
    member = group.require_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol_name
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    assignments: dict[str, bytes] = {}
    if group.leader_id == member.member_id and group.state is GroupState.COMPLETING_REBALANCE:
        assignments = {each.member_id: each.assignment for each in request.assignments}
        for each in group.members.values():
            assignment = assignments.get(each.member_id, b"")
            each.memory.take(member_bytes(each.protocols, assignment))
    draft = Draft(table, now)
    synced(draft, group, member.member_id)
    if group.state is GroupState.STABLE:
        return draft.decision(assigned(group, member))
    # Only the last SyncGroup of a member waits: its client has given the earlier ones up.
    draft.answer_sync(member, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    answer = member.syncing = DeferredAnswer()
    if group.leader_id == member.member_id:
        assign(draft, group, assignments)
    return draft.decision(answer)


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def heartbeat(
    table: GroupTable, request: HeartbeatRequest, now: Instant
) -> GroupDecision[HeartbeatResponse]:
    """Extend the member's session; the answer asks it to join again during a rebalance."""
    group = table.groups.get(request.group_id)
    if group is None:
        return classic.heartbeat(table, request, now)
    member = group.require_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    draft = Draft(table, now)
    extend_session(draft, group, member)
    rebalancing = group.state is GroupState.PREPARING_REBALANCE
    return draft.decision(
        HeartbeatResponse(
            error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        )
    )


def leave(
    table: GroupTable, group_id: str, leaving: Sequence[MemberIdentity], now: Instant
) -> GroupDecision[list[ErrorCode]]:
    """Remove members, with one code for each. Static ones may be named by instance alone."""
    group = table.groups.get(group_id)
    draft = Draft(table, now)
    consumers = table.consumers.get(group_id)
    if consumers is not None:
        return draft.decision(leave_consumers(draft, consumers, leaving))
    if group is None:
        return draft.decision([ErrorCode.UNKNOWN_MEMBER_ID for _ in leaving])
    codes = [_leave(draft, group, each) for each in leaving]
    # An empty group may have lost only ids that had not joined.
    if ErrorCode.NONE in codes and group.state is not GroupState.EMPTY:
        names = [each.group_instance_id or each.member_id for each in leaving]
        members_changed(draft, group, f"{named(names)} leaves{said(leaving[0].reason)}")
    return draft.decision(codes)


def _leave(draft: Draft, group: Group, leaving: MemberIdentity) -> ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if not member_id:
        member_id = group.static_ids.get(instance_id or "", "")
    elif member_id in group.pending_joins:
        end_session(draft, group, member_id)
        group.remove(member_id)
        return ErrorCode.NONE
    found = group.find_member(member_id, instance_id)
    if isinstance(found, ErrorCode):
        return found
    remove(draft, group, found)
    return ErrorCode.NONE
