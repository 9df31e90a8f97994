"""JoinGroup: the admission of clients as members of a group, and their member ids."""

from functools import partial
from typing import Final

from barnabas.coordinator.decision import DeferredAnswer, Instant
from barnabas.coordinator.group.client import Client, rebalance_timeout
from barnabas.coordinator.group.consumer import classic
from barnabas.coordinator.group.consumer.records import deletion
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import (
    GROUP_BYTES,
    PENDING_BYTES,
    Group,
    Member,
    MemoryShare,
    Protocols,
    member_bytes,
)
from barnabas.coordinator.group.rebalance import (
    complete_if_joined,
    end_session,
    expect_join,
    extend_session,
    joined,
    members_changed,
    prepare,
    remove,
)
from barnabas.coordinator.group.records import group_record
from barnabas.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable, named, said
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_SKIP_ASSIGNMENT_SINCE: Final = 9


def join(
    table: GroupTable, request: JoinGroupRequest, client: Client, now: Instant
) -> GroupDecision[JoinGroupResponse]:
    """Add a member, or let it join again; answered when the next generation begins.

    Raises KafkaError: INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, and COORDINATOR_NOT_AVAILABLE if the members of
    all groups take too much memory.
    """
    settings = table.settings
    limits = range(settings.min_session_timeout_ms, settings.max_session_timeout_ms + 1)
    if request.session_timeout_ms not in limits:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    draft = Draft(table, now)
    consumers = table.consumers.get(request.group_id)
    if consumers is not None:
        if consumers.members:
            try:
                return classic.join(draft, consumers, request, client)
            except KafkaError as error:
                # As in Kafka, without the member id.
                return Draft(table, now).decision(client.refusal(error.code))
        # An empty group changes its protocol with its next member.
        draft.records += deletion(consumers)
    group = table.groups.get(request.group_id)
    if group is None:
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        share = MemoryShare(table.memory).take(GROUP_BYTES)
        group = Group(request.group_id, now.wall_ms, memory=share)
    if not group.accepts(request.member_id, settings.max_size):
        _reject(draft, group, request.member_id)
        return draft.decision(KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED))
    if not group.supports(request.protocol_type, client.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.member_id:
        return _join_first(draft, group, request, client)
    if request.member_id in group.pending_joins:
        member = _member(table, request, client, request.member_id)
        return _add(draft, group, member, request)
    member = group.require_member(request.member_id, request.group_instance_id)
    return _join_again(draft, group, member, request, client.protocols)


def _reject(draft: Draft, group: Group, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        remove(draft, group, member)
    elif member_id in group.pending_joins:
        end_session(draft, group, member_id)
        group.remove(member_id)


# -- new members -----------------------------------------------------------------------------------


def _join_first(
    draft: Draft, group: Group, request: JoinGroupRequest, client: Client
) -> GroupDecision[JoinGroupResponse]:
    table, instance_id = draft.table, request.group_instance_id
    prefix = client.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{table.new_id()}"
    if instance_id is not None and instance_id in group.static_ids:
        member = _member(table, request, client, member_id)
        return _take_over(draft, group, group.static_ids[instance_id], member, client)
    if client.needs_id(request):
        # KIP-394: a client that never receives its id must not become a member of the group.
        group.pending_joins[member_id] = MemoryShare(table.memory).take(PENDING_BYTES)
        table.groups[request.group_id] = group
        expect_join(draft, group, member_id, request.session_timeout_ms)
        return draft.decision(client.with_id(member_id))
    member = _member(table, request, client, member_id)
    table.groups[request.group_id] = group
    return _add(draft, group, member, request)


def _add(
    draft: Draft, group: Group, member: Member, request: JoinGroupRequest
) -> GroupDecision[JoinGroupResponse]:
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.newcomers = True
    end_session(draft, group, member.member_id)
    group.add(member, request.protocol_type)
    member.is_new = True
    answer = member.joining = DeferredAnswer()
    extend_session(draft, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    members_changed(draft, group, f"{named([member.member_id])} joins{said(request.reason)}")
    return draft.decision(answer)


def _member(table: GroupTable, request: JoinGroupRequest, client: Client, member_id: str) -> Member:
    protocols = client.protocols
    return Member(
        member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout(request),
        protocols=protocols,
        memory=MemoryShare(table.memory).take(member_bytes(protocols)),
    )


# -- known members ---------------------------------------------------------------------------------


def _join_again(
    draft: Draft,
    group: Group,
    member: Member,
    request: JoinGroupRequest,
    protocols: Protocols,
) -> GroupDecision[JoinGroupResponse]:
    unchanged = member.protocols == protocols
    leads = group.leader_id == member.member_id
    # The leader may know of changes that no metadata shows, such as new partitions.
    if unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and not leads)
    ):
        return draft.decision(joined(group, member))
    member.memory.take(member_bytes(protocols, member.assignment))
    group.change_protocols(member, protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout(request)
    # Only the last JoinGroup of a member waits: its client has given the earlier ones up.
    draft.answer_join(member, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    answer = member.joining = DeferredAnswer()
    why = "joins again" if unchanged else "joins with another subscription"
    members_changed(draft, group, f"{named([member.member_id])} {why}{said(request.reason)}")
    return draft.decision(answer)


# -- static members under a new id (KIP-345) -------------------------------------------------------


def _take_over(
    draft: Draft, group: Group, old_id: str, member: Member, client: Client
) -> GroupDecision[JoinGroupResponse]:
    member.assignment = group.members[old_id].assignment
    if group.state is GroupState.STABLE:
        same_protocol = group.select_protocol(old_id, member) == group.protocol_name
        if same_protocol:
            return _log_takeover(draft, group, old_id, member, client)
    answer = member.joining = DeferredAnswer()
    _replace(draft, group, old_id, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_joined(draft, group)
    else:
        prepare(draft, group, f"static member {member.instance_id} joins with other protocols")
    return draft.decision(answer)


def _replace(draft: Draft, group: Group, old_id: str, member: Member) -> None:
    old = group.members[old_id]
    fenced = KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    draft.answer_join(old, fenced)
    draft.answer_sync(old, fenced)
    group.replace(old_id, member)
    _change_session(draft, group, old_id, member)


def _change_session(draft: Draft, group: Group, old_id: str, member: Member) -> None:
    end_session(draft, group, old_id)
    extend_session(draft, group, member)


def _log_takeover(
    draft: Draft, group: Group, old_id: str, member: Member, client: Client
) -> GroupDecision[JoinGroupResponse]:
    """Pass the assignment to the new id without a rebalance, once the new id is committed."""
    members = [member if key == old_id else each for key, each in group.members.items()]
    assignments = {each.member_id: each.assignment for each in members}
    leader_id = member.member_id if group.leader_id == old_id else group.leader_id
    draft.records.append(group_record(group, members, assignments, leader_id))
    group.takeover = (old_id, member)
    answer: DeferredAnswer[JoinGroupResponse] = DeferredAnswer()
    draft.then = partial(_taken_over, draft.table, group, answer, client.version)
    return draft.decision(answer)


def _taken_over(
    table: GroupTable,
    group: Group,
    answer: DeferredAnswer[JoinGroupResponse],
    version: int,
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    draft = Draft(table, now)
    assert group.takeover is not None
    (old_id, member), group.takeover = group.takeover, None
    if error is not None:
        draft.answer(answer, error)
        return draft.decision(None)
    _change_session(draft, group, old_id, member)
    response = joined(group, member)
    leads = group.leader_id == member.member_id
    if version >= _SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = leads
    elif leads:
        # An older client that learns that it leads would send assignments: the response names the
        # old leader.
        response.leader = old_id
        response.members = []
    draft.answer(answer, response)
    return draft.decision(None)
