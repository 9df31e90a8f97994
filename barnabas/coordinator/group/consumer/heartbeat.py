"""ConsumerGroupHeartbeat: members join, take a step towards their target, and leave (KIP-848).

A member that the group knows and that has nothing to say or to hear is answered by `steady`, which
looks at nothing but the member. Everything else is decided on committed state.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from barnabas.coordinator.decision import NOTHING, Instant
from barnabas.coordinator.group.consumer import records, sessions
from barnabas.coordinator.group.consumer.assignment import Assigning
from barnabas.coordinator.group.consumer.expressions import (
    compiled,
    refresh_if_due,
    refresh_is_due,
)
from barnabas.coordinator.group.consumer.group import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from barnabas.coordinator.group.consumer.leaving import away, fence, forget
from barnabas.coordinator.group.consumer.reconciliation import (
    is_subset,
    reconciled,
    require_known_state,
)
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import MemoryShare
from barnabas.coordinator.group.records import GroupRecord
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.steps import Steps, at_once

_OWN_IDS_SINCE: Final = 1
"""The version from which on members choose their ids (KIP-1082)."""


class ConsumerClient(NamedTuple):
    """The client of a heartbeat, from its connection and its request."""

    version: int
    """The version of ConsumerGroupHeartbeat."""
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool] = lambda _: True
    """Whether the client may know a topic: an expression matches no others."""


def steady(
    table: GroupTable,
    request: ConsumerGroupHeartbeatRequest,
    client: ConsumerClient,
    now: Instant,
) -> GroupDecision[ConsumerGroupHeartbeatResponse | None]:
    """Extend the session of a member for which nothing has changed; answered with None otherwise,
    and nothing has changed then."""
    draft = Draft(table, now)
    group = table.consumers.get(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if (
        group is None
        or member is None
        or member.epoch != request.member_epoch
        or member.epoch <= 0
        or not member.is_at(group.assignment_epoch)
        or group.epoch != group.assignment_epoch
        or group.checked_version != table.topics.version
        or request.instance_id != member.instance_id
        or client.client_id != member.client_id
        or client.client_host != member.client_host
        or _tells_something(request)
        or (group.expression_users and refresh_is_due(table, group, now))
    ):
        return draft.decision(None)
    sessions.extend_session(draft, group, member.member_id)
    interval_ms = table.settings_of(group.group_id).heartbeat_interval_ms
    return draft.decision(
        ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=member.epoch, heartbeat_interval_ms=interval_ms
        )
    )


def _tells_something(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.rack_id is not None
        or request.rebalance_timeout_ms != -1
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
        or request.topic_partitions is not None
    )


def heartbeat(
    table: GroupTable,
    request: ConsumerGroupHeartbeatRequest,
    client: ConsumerClient,
    now: Instant,
) -> GroupDecision[ConsumerGroupHeartbeatResponse]:
    """Answer a heartbeat. Raises the KafkaError that Kafka answers."""
    _validate(request, client.version, table.settings_of(request.group_id))
    draft = Draft(table, now)
    if request.member_epoch in (LEAVE, LEAVE_STATIC):
        return _leave(draft, request)
    group = _group(draft, request)
    _require_room(table, group, request.member_id)
    member_id = request.member_id or table.new_id()
    replaced = None
    if request.instance_id is None:
        member = _dynamic(group, member_id, request)
    else:
        member, replaced = _static(group, member_id, request, request.instance_id)
    updated = _updated(member, request, client)
    expression_changed = updated.expression != member.expression
    if expression_changed and updated.expression:
        compiled(updated.expression)
    memory = _take_memory(draft, group, updated)
    require_known_state(updated, request.topic_partitions)
    assigning = Assigning(draft, group, member, updated, replaced)
    if replaced is not None:
        _replace(draft, group, replaced, member)
    if updated != member or (member_id not in group.members and replaced is None):
        draft.records.append(records.subscription(group.group_id, updated))
    if expression_changed:
        assigning.forget_unused(member.expression)
    resolved = expression_changed and updated.expression in group.expressions
    bumps = updated.topics != member.topics or resolved
    assigning.advance(bumps=bumps or (expression_changed and not updated.expression))
    refresh_if_due(draft, group, updated, client.may_describe)
    _keep_alive(draft, group, member_id, memory)
    response = ConsumerGroupHeartbeatResponse()
    subscription_changed = expression_changed or updated.topics != member.topics
    step = _take_step(
        draft,
        assigning,
        request,
        (member, updated),
        response,
        loses=subscription_changed and member.epoch != 0,
    )
    if not assigning.takes_long:
        at_once(step)
        return draft.decision(response)
    draft.then = partial(_after_steps, draft, len(draft.effects), draft.then)
    return draft.decision(response, step)


def _after_steps(
    draft: Draft,
    performed: int,
    then: Callable[[KafkaError | None, Instant], GroupDecision[None]] | None,
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    """Perform the effects that the steps of a decision have added, and make the next decision."""
    following = NOTHING if then is None else then(error, now)
    late = () if error is not None else draft.effects[performed:]
    return following._replace(effects=[*following.effects, *late])


def _take_step(
    draft: Draft,
    assigning: Assigning,
    request: ConsumerGroupHeartbeatRequest,
    members: tuple[ConsumerMember, ConsumerMember],
    response: ConsumerGroupHeartbeatResponse,
    *,
    loses: bool,
) -> Steps[None]:
    """Let a member take a step towards its target, and fill in the answer.

    `members` are the member before the request and with what it tells. If it `loses`, partitions of
    topics to which it no longer subscribes go at once.
    """
    before, updated = members
    group = assigning.group
    target = yield from assigning.target()
    member = reconciled(
        updated,
        target,
        assigning.assignment_epoch,
        request.topic_partitions,
        group.is_free,
        assigning.is_subscribed if loses else None,
    )
    if member != updated:
        draft.records.append(records.current(group.group_id, member))
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if member != updated:
            sessions.await_revocation(draft, group.group_id, member)
    elif before.state is MemberState.UNREVOKED_PARTITIONS:
        sessions.end_revocation(draft, group.group_id, member.member_id)
    _fill(response, draft, request, before, member)


def _fill(
    response: ConsumerGroupHeartbeatResponse,
    draft: Draft,
    request: ConsumerGroupHeartbeatRequest,
    before: ConsumerMember,
    member: ConsumerMember,
) -> None:
    is_full = (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )
    tells = is_full or request.member_epoch == JOIN or before.assigned != member.assigned
    settings = draft.table.settings_of(request.group_id)
    response.member_id, response.member_epoch = member.member_id, member.epoch
    response.heartbeat_interval_ms = settings.heartbeat_interval_ms
    response.assignment = _assignment(member.assigned) if tells else None


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
        ]
    )


# -- the request -----------------------------------------------------------------------------------


def _validate(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: ConsumerGroupSettings
) -> None:
    epoch = request.member_epoch
    member_id = request.member_id
    if not (member_id.strip() if version >= _OWN_IDS_SINCE else member_id or epoch == JOIN):
        raise _invalid("MemberId can't be empty.")
    for value, name in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN:
        _validate_join(request)
    elif epoch == LEAVE_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.assignors)}.",
        )


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _group(draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    """Return the group; a new one, or one in place of an empty classic group, for a member that
    joins. Raises GROUP_ID_NOT_FOUND."""
    table, group_id = draft.table, request.group_id
    group = table.consumers.get(group_id)
    if group is not None:
        return group
    classic = table.groups.get(group_id)
    if classic is None and request.member_epoch != JOIN:
        raise _not_found(f"Consumer group {group_id} not found.")
    if classic is not None:
        empty = classic.state is GroupState.EMPTY and not classic.pending_joins
        if request.member_epoch != JOIN or not empty:
            raise _not_found(f"Group {group_id} is not a consumer group.")
        draft.records.append(GroupRecord(group_id, None))
    return ConsumerGroup(group_id)


def _not_found(text: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _require_room(table: GroupTable, group: ConsumerGroup, member_id: str) -> None:
    most = table.settings_of(group.group_id).max_size
    if len(group.members) >= most and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


# -- the member ------------------------------------------------------------------------------------


def _dynamic(
    group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    if request.member_epoch == JOIN and member_id not in group.members:
        return ConsumerMember(member_id)
    member = group.require(member_id)
    _require_epoch(member, request)
    return member


def _static(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    instance_id: str,
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return a static member, and the one whose place it takes."""
    if request.member_epoch != JOIN:
        member = group.require_static(instance_id, member_id)
        _require_epoch(member, request)
        return member, None
    known = group.members.get(group.static_ids.get(instance_id, ""))
    if known is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if known.epoch != LEAVE_STATIC:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {known.member_id} member.",
        )
    return replace(known, member_id=member_id, epoch=JOIN, previous_epoch=0), known


def _require_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise FENCED_MEMBER_EPOCH, unless the member joins again, has its epoch, or has not got the
    answer with it and uses only what it has."""
    epoch = request.member_epoch
    if epoch in (JOIN, member.epoch):
        return
    is_previous = epoch == member.previous_epoch and epoch < member.epoch
    if is_previous and is_subset(request.topic_partitions, member.assigned):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient
) -> ConsumerMember:
    """Return the member with what the request tells about it."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=_told(request.instance_id, member.instance_id),
        rack_id=_told(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=_told(request.server_assignor, member.assignor),
        topics=member.topics if names is None else tuple(sorted(set(names))),
        expression=_told(request.subscribed_topic_regex, member.expression) or "",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )


def _told(new: str | None, known: str | None) -> str | None:
    return known if new is None else new


def _replace(
    draft: Draft, group: ConsumerGroup, old: ConsumerMember, member: ConsumerMember
) -> None:
    """Give the place of a static member that left to a new id."""
    group_id, member_id = group.group_id, member.member_id
    sessions.end_session(draft, group, old.member_id)
    forget(draft, group_id, old.member_id)
    target = group.targets.get(old.member_id, NO_TARGET)
    draft.records.append(records.subscription(group_id, member))
    draft.records.append(records.target(group_id, member_id, target))
    draft.records.append(records.current(group_id, member))


def _take_memory(draft: Draft, group: ConsumerGroup, member: ConsumerMember) -> MemoryShare:
    """Return the memory of a member. Raises COORDINATOR_NOT_AVAILABLE if there is no room."""
    session = group.sessions.get(member.member_id)
    share = MemoryShare(draft.table.memory) if session is None else session.memory
    return share.take(member.size)


def _keep_alive(draft: Draft, group: ConsumerGroup, member_id: str, memory: MemoryShare) -> None:
    """Extend the member's session; a new one begins once the member's records are committed."""
    table = draft.table
    if member_id in group.sessions:
        sessions.extend_session(draft, group, member_id)
    else:
        draft.then = partial(_joined, table, group.group_id, member_id, memory)


def _joined(
    table: GroupTable,
    group_id: str,
    member_id: str,
    memory: MemoryShare,
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    if error is None and group is not None and member_id in group.members:
        sessions.extend_session(draft, group, member_id, memory)
    return draft.decision(None)


# -- leaving ---------------------------------------------------------------------------------------


def _leave(
    draft: Draft, request: ConsumerGroupHeartbeatRequest
) -> GroupDecision[ConsumerGroupHeartbeatResponse]:
    table, group_id = draft.table, request.group_id
    group = table.consumers.get(group_id)
    if group is None:
        known = group_id in table.groups
        text = "is not a consumer group." if known else "not found."
        raise _not_found(f"Group {group_id} {text}")
    if request.instance_id is None:
        member = group.require(request.member_id)
    else:
        member = group.require_static(request.instance_id, request.member_id)
    if request.member_epoch == LEAVE_STATIC:
        draft.records.append(records.current(group_id, away(member)))
    else:
        sessions.end_session(draft, group, member.member_id)
        fence(draft, group, [member])
    return draft.decision(
        ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
    )
