"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat.

The coordinator assigns partitions to them as to all members. Their generation is their epoch, and
none of them leads. An answer of REBALANCE_IN_PROGRESS makes them take the next step.
"""

from functools import partial

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.group.client import Client, rebalance_timeout
from barnabas.coordinator.group.consumer import sessions
from barnabas.coordinator.group.consumer.advancing import Change, advance, require_room, successor
from barnabas.coordinator.group.consumer.embedded import by_id, read_subscription, write_assignment
from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, classic_part
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import CONSUMER
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(
    draft: Draft, group: ConsumerGroup, request: JoinGroupRequest, client: Client
) -> GroupDecision[JoinGroupResponse]:
    """Take a member in, or let it take a step towards its target.

    Raises KafkaError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, and COORDINATOR_NOT_AVAILABLE if there is no memory.
    """
    table = draft.table
    require_room(group, request.member_id, table.settings_of(group.group_id).max_size)
    if not group.supports(request.protocol_type, client.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or table.new_id()
    if client.needs_id(request):
        return draft.decision(client.with_id(member_id))
    member, replaced = _joining(group, member_id, request)
    try:
        subscription = read_subscription(client.protocols[0][1])
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    updated = member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout(request),
        topics=tuple(sorted(set(subscription.topics))),
        expression="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=classic_part(request.session_timeout_ms, client.protocols),
    )
    owned = [
        TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_id(table.topics, subscription.owned_partitions).items()
    ]
    response = JoinGroupResponse(
        protocol_type=CONSUMER,
        protocol_name=client.protocols[0][0],
        leader="",
        member_id=member_id,
        members=[],
    )
    change = Change(group, member, updated, replaced, owned)
    return advance(draft, change, response, partial(_begin, response))


def _begin(response: JoinGroupResponse, member: ConsumerMember) -> None:
    response.generation_id = member.epoch


def _joining(
    group: ConsumerGroup, member_id: str, request: JoinGroupRequest
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return the member that joins, and the static one whose place it takes."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if request.member_id:
        return group.require_static(instance_id, member_id), None
    known = group.members.get(group.static_ids.get(instance_id, ""))
    if known is None:
        return ConsumerMember(member_id), None
    return successor(known, member_id), known


def sync(
    table: GroupTable, request: SyncGroupRequest, now: Instant
) -> GroupDecision[SyncGroupResponse]:
    """Return a member's assignment.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, and REBALANCE_IN_PROGRESS if the member has to join again.
    """
    draft = Draft(table, now)
    group = table.require_consumers(request.group_id)
    member = _known(group, request)
    name, metadata = member.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # One that has partitions to give up gets the rest first, and then joins again.
    if _is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        sessions.await_join(draft, group, member)
        return draft.decision(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    sessions.end_sync(draft, group, member.member_id)
    sessions.extend_session(draft, group, member.member_id)
    return draft.decision(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(table.topics, member.assigned, metadata),
        )
    )


def heartbeat(
    table: GroupTable, request: HeartbeatRequest, now: Instant
) -> GroupDecision[HeartbeatResponse]:
    """Extend a member's session; the answer asks it to join again if it can take a step.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    draft = Draft(table, now)
    group = table.require_consumers(request.group_id)
    member = _known(group, request)
    sessions.extend_session(draft, group, member.member_id)
    if (
        not _is_behind(group, member)
        and member.state is not MemberState.UNREVOKED_PARTITIONS
        and (member.state is not MemberState.UNRELEASED_PARTITIONS or group.awaits(member))
    ):
        return draft.decision(HeartbeatResponse())
    sessions.await_join(draft, group, member)
    return draft.decision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def _is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether there is a target of a later epoch than the member's. A group of classic
    members alone computes it when they join; otherwise members of the newer protocol do."""
    is_alone = group.classic_members == len(group.members)
    return (group.epoch if is_alone else group.assignment_epoch) > member.epoch


def _known(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> ConsumerMember:
    """Return the classic member of a request in its generation."""
    if request.group_instance_id is None:
        member = group.require(request.member_id)
    else:
        member = group.require_static(request.group_instance_id, request.member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.generation_id != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member
