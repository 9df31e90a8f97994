"""The timers of members: sessions, and the time in which a member has to give partitions up.

A heartbeat only moves the member's deadline. If the timer fires too early, it is started again for
the rest: so a heartbeat costs no timer.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from barnabas.coordinator.decision import Instant, StartTimer, TimerKey
from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, Session
from barnabas.coordinator.group.consumer.leaving import fence
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.consumer.timers import JOIN, REBALANCE, SESSION, SYNC, timers_of
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import MemoryShare
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leave_group import MemberIdentity


def extend_session(
    draft: Draft, group: ConsumerGroup, member_id: str, memory: MemoryShare | None = None
) -> None:
    """Extend a member's session from now; a new one gets the memory of its member."""
    now_ms = draft.now.monotonic_ms
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        timeout_ms = draft.table.settings_of(group.group_id).session_timeout_ms
    else:
        timeout_ms = member.classic.session_timeout_ms
    session = group.sessions.get(member_id)
    if session is None:
        if memory is None:
            memory = MemoryShare(draft.table.memory).keep(group.members[member_id].size)
        session = group.sessions[member_id] = Session(memory)
    session.deadline_ms = now_ms + timeout_ms
    if session.timer_ms is None or session.deadline_ms < session.timer_ms:
        _start_session(draft, group.group_id, member_id, session)


def _start_session(draft: Draft, group_id: str, member_id: str, session: Session) -> None:
    session.timer_ms = session.deadline_ms
    delay_ms = session.deadline_ms - draft.now.monotonic_ms
    _start(draft, (SESSION, group_id, member_id), group_id, delay_ms, _session_over)


def await_revocation(draft: Draft, group_id: str, member: ConsumerMember) -> None:
    """Give a member its rebalance timeout to give partitions up."""
    key = (REBALANCE, group_id, member.member_id)
    decide = partial(_revocation_over, draft.table, group_id, member.member_id, member.epoch)
    draft.effects.append(StartTimer(key, member.rebalance_timeout_ms, group_id, decide))


def end_revocation(draft: Draft, group_id: str, member_id: str) -> None:
    """Stop the time of `await_revocation`."""
    draft.cancel((REBALANCE, group_id, member_id))


def await_join(draft: Draft, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Give a classic member that is asked to join again its rebalance timeout for that."""
    session = group.sessions.get(member.member_id)
    if session is not None and not session.must_join:
        session.must_join = True
        _await(draft, JOIN, group, member)


def await_sync(draft: Draft, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Give a classic member that has joined its rebalance timeout to ask for its assignment."""
    session = group.sessions.get(member.member_id)
    if session is not None:
        session.must_join = False
    draft.cancel((JOIN, group.group_id, member.member_id))
    _await(draft, SYNC, group, member)


def end_sync(draft: Draft, group: ConsumerGroup, member_id: str) -> None:
    """Stop the time of `await_sync`."""
    draft.cancel((SYNC, group.group_id, member_id))


def _await(draft: Draft, kind: str, group: ConsumerGroup, member: ConsumerMember) -> None:
    key = (kind, group.group_id, member.member_id)
    _start(draft, key, group.group_id, member.rebalance_timeout_ms, _too_late)


def _too_late(
    table: GroupTable, group_id: str, member_id: str, now: Instant
) -> GroupDecision[None]:
    """Remove a classic member that has not done its part of a rebalance in time."""
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    if group is not None and member_id in group.members:
        _fence(draft, group, member_id, "has not done its part of a rebalance in time")
    return draft.decision(None)


def end_session(draft: Draft, group: ConsumerGroup, member_id: str) -> None:
    """End the session of a member that is removed; another one begins if its removal is refused."""
    group.sessions.pop(member_id, None)
    for timer in timers_of(group.group_id, member_id):
        draft.cancel(timer)
    draft.afterwards(partial(_removed, draft.table, group.group_id, member_id))


def _removed(
    table: GroupTable, group_id: str, member_id: str, error: KafkaError | None, now: Instant
) -> GroupDecision[None]:
    """Give a member whose removal was refused its times again: one that is gone for good sends no
    heartbeat, and would keep its partitions."""
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    if error is not None and group is not None and member_id in group.members:
        _resume(draft, group, group.members[member_id])
    return draft.decision(None)


def resume(draft: Draft, group: ConsumerGroup) -> None:
    """Give every member a whole session, and all its time to give partitions up: after a load, no
    member has sent a heartbeat to this broker."""
    for member in group.members.values():
        _resume(draft, group, member)


def _resume(draft: Draft, group: ConsumerGroup, member: ConsumerMember) -> None:
    extend_session(draft, group, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
        await_revocation(draft, group.group_id, member)


def _start(
    draft: Draft,
    key: TimerKey,
    group_id: str,
    delay_ms: int,
    over: Callable[[GroupTable, str, str, Instant], GroupDecision[Any]],
) -> None:
    decide = partial(over, draft.table, group_id, key[-1])
    draft.effects.append(StartTimer(key, delay_ms, group_id, decide))


def _session_over(
    table: GroupTable, group_id: str, member_id: str, now: Instant
) -> GroupDecision[None]:
    """Remove a member whose timer has fired, unless its session has been extended since."""
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    session = None if group is None else group.sessions.get(member_id)
    if group is None or session is None or member_id not in group.members:
        return draft.decision(None)
    session.timer_ms = None
    if now.monotonic_ms < session.deadline_ms:
        _start_session(draft, group_id, member_id, session)
    else:
        _fence(draft, group, member_id, "has not sent a heartbeat in time")
    return draft.decision(None)


def _revocation_over(
    table: GroupTable, group_id: str, member_id: str, epoch: int, now: Instant
) -> GroupDecision[None]:
    """Remove a member that has not given its partitions up in time."""
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is not None and member is not None and member.epoch == epoch:
        _fence(draft, group, member_id, "has not given its partitions up in time")
    return draft.decision(None)


def leave_consumers(
    draft: Draft, group: ConsumerGroup, leaving: Iterable[MemberIdentity]
) -> list[ErrorCode]:
    """Remove members by LeaveGroup, with one code for each."""
    codes, gone = [], []
    for each in leaving:
        member = _leaving(group, each)
        codes.append(member if isinstance(member, ErrorCode) else ErrorCode.NONE)
        if not isinstance(member, ErrorCode) and member not in gone:
            end_session(draft, group, member.member_id)
            gone.append(member)
    if gone:
        fence(draft, group, gone)
    return codes


def _leaving(group: ConsumerGroup, leaving: MemberIdentity) -> ConsumerMember | ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if instance_id is not None:
        known = group.static_ids.get(instance_id)
        if known is not None and member_id not in ("", known):
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = known or ""
    return group.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def _fence(draft: Draft, group: ConsumerGroup, member_id: str, why: str) -> None:
    end_session(draft, group, member_id)
    fence(draft, group, [group.members[member_id]], why)
