"""The rebalance of a group: sessions of members, and the way from one generation to the next.

The steps are: prepare, gather the members' JoinGroups, complete, gather their SyncGroups.
"""

from functools import partial

from barnabas.coordinator.decision import Instant, TimerKey
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import NOT_SETTLED, Group, Member
from barnabas.coordinator.group.records import group_record
from barnabas.coordinator.group.states import CLASSIC, GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable, named
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse


def session_key(group: Group, member_id: str) -> TimerKey:
    """Return the timer of a member's session, or of a member id that has not joined yet."""
    return ("session", group.group_id, member_id)


def _join_key(group: Group) -> TimerKey:
    return ("join", group.group_id)


def _sync_key(group: Group) -> TimerKey:
    return ("sync", group.group_id)


# -- sessions --------------------------------------------------------------------------------------
# A heartbeat only moves the member's deadline. If the timer fires too early, it is started again
# for the rest: so a heartbeat costs no timer.


def extend_session(
    draft: Draft, group: Group, member: Member, timeout_ms: int | None = None
) -> None:
    """Extend a member's session from now, by its session timeout unless `timeout_ms` is given."""
    now_ms = draft.now.monotonic_ms
    member.deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
    if member.timer_ms is None or member.deadline_ms < member.timer_ms:
        _start_session(draft, group, member)


def expect_join(draft: Draft, group: Group, member_id: str, timeout_ms: int) -> None:
    """Start the timer of a member id that a client was given: it must join within the timeout."""
    decide = partial(_session_over, draft.table, group.group_id, member_id)
    draft.start(session_key(group, member_id), timeout_ms, group, decide)


def end_session(draft: Draft, group: Group, member_id: str) -> None:
    """Cancel the timer of a member that is removed."""
    draft.cancel(session_key(group, member_id))


def end_timers(draft: Draft, group: Group) -> None:
    """Cancel the timers of a group that is replaced."""
    for member_id in (*group.members, *group.pending_joins):
        end_session(draft, group, member_id)
    draft.cancel(_join_key(group))
    draft.cancel(_sync_key(group))


def _start_session(draft: Draft, group: Group, member: Member) -> None:
    member.timer_ms = member.deadline_ms
    delay_ms = member.deadline_ms - draft.now.monotonic_ms
    expect_join(draft, group, member.member_id, delay_ms)


def _session_over(
    table: GroupTable, group_id: str, member_id: str, now: Instant
) -> GroupDecision[None]:
    """Remove a member whose timer has fired, unless its session has been extended since."""
    draft = Draft(table, now)
    group = table.groups.get(group_id)
    if group is None:
        return draft.decision(None)
    member = group.members.get(member_id)
    if member is None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            complete_if_joined(draft, group)
        return draft.decision(None)
    member.timer_ms = None
    if now.monotonic_ms < member.deadline_ms:
        _start_session(draft, group, member)
        return draft.decision(None)
    # A member that waits for an answer cannot send heartbeats. A new one is removed all the same:
    # its client may be gone, and would come back under another id.
    if member.is_new or (member.joining is None and member.syncing is None):
        remove(draft, group, member)
        members_changed(draft, group, f"the session of member {member_id} is over")
    return draft.decision(None)


def resume_sessions(table: GroupTable, now: Instant) -> GroupDecision[None]:
    """Give every member a whole session: after a load, no member has sent a heartbeat to this
    broker. Groups that have to rebalance do."""
    draft = Draft(table, now)
    for group in table.groups.values():
        for member in group.members.values():
            extend_session(draft, group, member)
        if group.state is GroupState.STABLE and group.state_timestamp_ms == NOT_SETTLED:
            prepare(draft, group, "the coordinator has moved during a rebalance")
    return draft.decision(None)


# -- to a new generation ---------------------------------------------------------------------------


def members_changed(draft: Draft, group: Group, reason: str) -> None:
    """Begin a rebalance, or continue it: a member joined, left or changed."""
    if group.can_rebalance:
        prepare(draft, group, reason)
    else:
        complete_if_joined(draft, group)


def complete_if_joined(draft: Draft, group: Group) -> None:
    """Complete a rebalance that waits for members, if all have joined."""
    # From EMPTY the initial delay continues until its own end (KIP-134).
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
    ):
        _complete_or_wait(draft, group)


def prepare(draft: Draft, group: Group, reason: str) -> None:
    """Ask all members to join again."""
    draft.table.rebalances(group.group_id, CLASSIC, reason)
    if group.state is GroupState.COMPLETING_REBALANCE:
        _propagate(draft, group, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    draft.cancel(_sync_key(group))
    initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, draft.now.wall_ms)
    if initial:
        delay_ms = draft.table.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _delay(draft, group, delay_ms, remaining_ms)
    else:
        _complete_or_wait(draft, group)


def _delay(draft: Draft, group: Group, delay_ms: int, remaining_ms: int) -> None:
    decide = partial(_delay_over, draft.table, group.group_id, delay_ms, remaining_ms)
    draft.start(_join_key(group), delay_ms, group, decide)


def _delay_over(
    table: GroupTable, group_id: str, delay_ms: int, remaining_ms: int, now: Instant
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.groups.get(group_id)
    if group is not None and group.state is GroupState.PREPARING_REBALANCE:
        if group.newcomers and remaining_ms:
            group.newcomers = False
            next_ms = min(table.settings.initial_rebalance_delay_ms, remaining_ms)
            _delay(draft, group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            _complete(draft, group)
    return draft.decision(None)


def _complete_or_wait(draft: Draft, group: Group) -> None:
    if group.all_joined:
        _complete(draft, group)
    else:
        _wait(draft, group)


def _wait(draft: Draft, group: Group) -> None:
    decide = partial(_join_time_over, draft.table, group.group_id)
    draft.start(_join_key(group), group.rebalance_timeout_ms, group, decide)


def _join_time_over(table: GroupTable, group_id: str, now: Instant) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.groups.get(group_id)
    if group is not None and group.state is GroupState.PREPARING_REBALANCE:
        _complete(draft, group)
    return draft.decision(None)


def _complete(draft: Draft, group: Group) -> None:
    """Begin the next generation with the members that have joined: the time to join is over."""
    draft.cancel(_join_key(group))
    group.newcomers = False
    for member in list(group.members.values()):
        # Static members are known to come back; only the end of their session removes them.
        if member.joining is None and member.instance_id is None:
            end_session(draft, group, member.member_id)
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        _wait(draft, group)
        return
    group.begin_generation(draft.now.wall_ms)
    if group.state is GroupState.EMPTY:
        draft.records.append(group_record(group, [], {}, None))
        return
    for member in group.members.values():
        draft.answer_join(member, joined(group, member))
        extend_session(draft, group, member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    decide = partial(_sync_time_over, draft.table, group.group_id, group.generation)
    draft.start(_sync_key(group), group.rebalance_timeout_ms, group, decide)


# -- to a stable group -----------------------------------------------------------------------------


def synced(draft: Draft, group: Group, member_id: str) -> None:
    """Note a member's SyncGroup; once all have sent it, the timer is cancelled."""
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        draft.cancel(_sync_key(group))


def _sync_time_over(
    table: GroupTable, group_id: str, generation: int, now: Instant
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.groups.get(group_id)
    if (
        group is not None
        and group.generation == generation
        and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        and group.pending_syncs
    ):
        late = sorted(group.pending_syncs)
        for member_id in late:
            end_session(draft, group, member_id)
            group.remove(member_id)
        prepare(draft, group, f"no SyncGroup in time from {named(late)}")
    return draft.decision(None)


def assign(draft: Draft, group: Group, assignments: dict[str, bytes]) -> None:
    """Log the leader's assignments, and give each member its own once that is committed."""
    members = list(group.members.values())
    draft.records.append(group_record(group, members, assignments, group.leader_id))
    draft.then = partial(_assigned, draft.table, group.group_id)


def _assigned(
    table: GroupTable, group_id: str, error: KafkaError | None, now: Instant
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.groups[group_id]
    _propagate(draft, group, error)
    if error is not None:
        members_changed(draft, group, f"the assignment was not written: {error.code.name}")
    else:
        table.counts.classic_rebalances += 1
    return draft.decision(None)


def _propagate(draft: Draft, group: Group, error: KafkaError | None) -> None:
    """Answer every SyncGroup that waits, with the member's assignment or an error."""
    for member in group.members.values():
        if error is not None:
            member.assignment = b""
        draft.answer_sync(member, assigned(group, member) if error is None else error)
        # A session may have ended while the member waited, without effect: a new one begins.
        extend_session(draft, group, member)


# -- leaving ---------------------------------------------------------------------------------------


def remove(draft: Draft, group: Group, member: Member) -> None:
    """Remove a member, and answer its request if one waits."""
    unknown = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    draft.answer_join(member, unknown)
    draft.answer_sync(member, unknown)
    end_session(draft, group, member.member_id)
    group.remove(member.member_id)


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """Return the answer to a member of the current generation; its leader gets all members."""
    leads = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=group.listing() if leads else [],
    )


def assigned(group: Group, member: Member) -> SyncGroupResponse:
    """Return the answer with a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
