"""ConsumerGroupHeartbeat: members join, take a step towards their target, and leave (KIP-848).

A member that the group knows and that tells nothing about itself is answered by `steady`, which
looks at nothing but the member. All but answers without news are decided on committed state.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from barnabas.coordinator.decision import Decision, Instant
from barnabas.coordinator.group.consumer import records, sessions
from barnabas.coordinator.group.consumer.advancing import (
    Change,
    advance,
    require_room,
    successor,
    take_step,
)
from barnabas.coordinator.group.consumer.assignment import is_due
from barnabas.coordinator.group.consumer.expressions import refresh_is_due
from barnabas.coordinator.group.consumer.group import (
    EPOCH_AT,
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from barnabas.coordinator.group.consumer.leaving import away, fence
from barnabas.coordinator.group.consumer.reconciliation import is_subset, require_known_state
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings
from barnabas.coordinator.group.consumer.upgrade import upgrade
from barnabas.coordinator.group.draft import Draft
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

_new = tuple.__new__
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
    *,
    steps: bool = False,
) -> GroupDecision[ConsumerGroupHeartbeatResponse | None]:
    """Extend the session of a member that tells nothing about itself, and for which nothing has
    changed; answered with None otherwise, and nothing has changed then.

    What it uses is no news of one that has its target. With `steps` one that has not takes a step
    towards it.
    """
    group = table.consumers.get(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if (
        group is None
        or member is None
        or member.epoch != request.member_epoch
        or member.epoch <= 0
        or member.classic is not None
        or not (steps or member.is_at(group.assignment_epoch))
        or is_due(table, group, group.epoch, now)
        or not group.has_seen(table.topics.version)
        or request.instance_id != member.instance_id
        or client.client_id != member.client_id
        or client.client_host != member.client_host
        or (group.expression_users and refresh_is_due(table, group, now))
    ):
        return Decision(None)
    draft = Draft(table, now)
    sessions.extend_session(draft, group, member.member_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=table.settings_of(group.group_id).heartbeat_interval_ms,
    )
    if not member.is_at(group.assignment_epoch):
        owned = request.topic_partitions
        require_known_state(member, owned)
        target = group.targets.get(member.member_id, NO_TARGET)
        change = Change(group, member, member, None, owned)
        after = take_step(draft, change, target, group.assignment_epoch)
        response.member_epoch = after.epoch
        if after.assigned != member.assigned:
            response.assignment = _assignment(after.assigned)
    return draft.decision(response)


def tells_about_itself(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a request says more than that the member lives, and what it uses."""
    return (
        request.rack_id is not None
        or request.rebalance_timeout_ms != -1
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
    )


def heartbeat(
    table: GroupTable,
    request: ConsumerGroupHeartbeatRequest,
    client: ConsumerClient,
    now: Instant,
) -> GroupDecision[ConsumerGroupHeartbeatResponse]:
    """Answer a heartbeat. Raises the KafkaError that Kafka answers."""
    if not tells_about_itself(request):
        decision = steady(table, request, client, now, steps=True)
        if decision.answer is not None:
            return cast("GroupDecision[ConsumerGroupHeartbeatResponse]", decision)
    settings = table.settings_of(request.group_id)
    _validate(request, client.version, settings)
    draft = Draft(table, now)
    if request.member_epoch in (LEAVE, LEAVE_STATIC):
        return _leave(draft, request)
    group = _group(draft, request)
    require_room(group, request.member_id, settings.max_size)
    member_id = request.member_id or table.new_id()
    replaced = None
    if request.instance_id is None:
        member = _dynamic(group, member_id, request)
    else:
        member, replaced = _static(group, member_id, request, request.instance_id)
    updated = _updated(member, request, client)
    response = ConsumerGroupHeartbeatResponse()
    change = Change(group, member, updated, replaced, request.topic_partitions, client.may_describe)
    fill = partial(_fill, response, request, settings.heartbeat_interval_ms, member)
    return advance(draft, change, response, fill)


def _fill(
    response: ConsumerGroupHeartbeatResponse,
    request: ConsumerGroupHeartbeatRequest,
    interval_ms: int,
    before: ConsumerMember,
    member: ConsumerMember,
) -> None:
    """Fill in the answer to a member, which was `before`."""
    is_full = (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )
    tells = is_full or request.member_epoch == JOIN or before.assigned != member.assigned
    response.member_id, response.member_epoch = member.member_id, member.epoch
    response.heartbeat_interval_ms = interval_ms
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
    """Return the group; a new one, or one in place of a classic group, for a member that joins.
    Raises GROUP_ID_NOT_FOUND."""
    table, group_id = draft.table, request.group_id
    group = table.consumers.get(group_id)
    if group is not None:
        return group
    classic = table.groups.get(group_id)
    if classic is None and request.member_epoch != JOIN:
        raise _not_found(f"Consumer group {group_id} not found.")
    if classic is not None:
        if request.member_epoch != JOIN:
            raise _not_found(f"Group {group_id} is not a consumer group.")
        if classic.state is not GroupState.EMPTY:
            return upgrade(draft, classic)
        draft.records.append(GroupRecord(group_id, None))
    return ConsumerGroup(group_id)


def _not_found(text: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


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
    if known.epoch != LEAVE_STATIC and known.classic is None:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {known.member_id} member.",
        )
    return successor(known, member_id), known


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
    """Return the member with what the request tells about it; the same one if that is nothing."""
    if (
        not tells_about_itself(request)
        and client.client_id == member.client_id
        and client.client_host == member.client_host
        and member.classic is None
    ):
        return member
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    told = (
        member.member_id,
        _told(request.instance_id, member.instance_id),
        _told(request.rack_id, member.rack_id),
        client.client_id,
        client.client_host,
        member.topics if names is None else tuple(sorted(set(names))),
        _told(request.subscribed_topic_regex, member.expression) or "",
        member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        _told(request.server_assignor, member.assignor),
        None,
    )
    return _new(ConsumerMember, told + member[EPOCH_AT:])


def _told(new: str | None, known: str | None) -> str | None:
    return known if new is None else new


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
