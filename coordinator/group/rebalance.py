"""How a group comes from one generation to the next: prepare, gather, complete, sync."""

from functools import partial

from barnabas.coordinator.decision import Decision, TimerKey, Turn
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, Member
from barnabas.coordinator.group.records import GroupCoordinatorRecord, group_record
from barnabas.coordinator.group.sessions import Sessions
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse


def _join_key(group: Group) -> TimerKey:
    return ("join", group.group_id)


def _sync_key(group: Group) -> TimerKey:
    return ("sync", group.group_id)


class Rebalance:
    """Moves groups through their states; `groups` are those of the shard, by id."""

    def __init__(
        self, groups: dict[str, Group], settings: GroupSettings, sessions: Sessions
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._sessions = sessions

    # -- towards a new generation ----------------------------------------------------------------

    def members_changed(self, draft: Draft, group: Group) -> None:
        """Somebody came, went or wants something else: begin a rebalance, or get on with it."""
        if group.can_rebalance:
            self.prepare(draft, group)
        else:
            self.get_on(draft, group)

    def get_on(self, draft: Draft, group: Group) -> None:
        """Complete a rebalance that waits for members, if all are there now."""
        # From EMPTY the initial delay goes on until its own end (KIP-134).
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
        ):
            self._complete_or_wait(draft, group)

    def prepare(self, draft: Draft, group: Group) -> None:
        """Ask everybody to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.propagate(draft, group, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        draft.cancel(_sync_key(group))
        initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, draft.turn.now_ms)
        if initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay(draft, group, delay_ms, remaining_ms)
        else:
            self._complete_or_wait(draft, group)

    def _delay(self, draft: Draft, group: Group, delay_ms: int, remaining_ms: int) -> None:
        decide = partial(self._delay_over, group.group_id, delay_ms, remaining_ms)
        draft.start(_join_key(group), delay_ms, group, decide)

    def _delay_over(
        self, group_id: str, delay_ms: int, remaining_ms: int, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        draft = Draft(turn)
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            if group.newcomers and remaining_ms:
                group.newcomers = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                self._delay(draft, group, next_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete(draft, group)
        return draft.decision()

    def _complete_or_wait(self, draft: Draft, group: Group) -> None:
        if group.all_joined:
            self._complete(draft, group)
        else:
            self._wait(draft, group)

    def _wait(self, draft: Draft, group: Group) -> None:
        decide = partial(self._waited, group.group_id)
        draft.start(_join_key(group), group.rebalance_timeout_ms, group, decide)

    def _waited(self, group_id: str, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        draft = Draft(turn)
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            self._complete(draft, group)
        return draft.decision()

    def _complete(self, draft: Draft, group: Group) -> None:
        """The time to join is over: who is there makes the next generation."""
        draft.cancel(_join_key(group))
        group.newcomers = False
        for member in list(group.members.values()):
            # Static members are known to come back; only their session's end removes them.
            if member.joining is None and member.instance_id is None:
                self._sessions.end(draft, group, member.member_id)
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            self._wait(draft, group)
            return
        group.begin_generation(draft.turn.now_ms)
        if group.state is GroupState.EMPTY:
            draft.records.append(group_record(group, [], {}, None))
            return
        for member in group.members.values():
            draft.answer_join(member, joined(group, member))
            self._sessions.extend(draft, group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        decide = partial(self._sync_expired, group.group_id, group.generation)
        draft.start(_sync_key(group), group.rebalance_timeout_ms, group, decide)

    # -- towards a stable one --------------------------------------------------------------------

    def synced(self, draft: Draft, group: Group, member_id: str) -> None:
        """A member has sent SyncGroup; when all have, nobody is waited for any more."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            draft.cancel(_sync_key(group))

    def _sync_expired(
        self, group_id: str, generation: int, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        draft = Draft(turn)
        group = self._groups.get(group_id)
        if (
            group is not None
            and group.generation == generation
            and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            and group.pending_syncs
        ):
            for member_id in sorted(group.pending_syncs):
                self._sessions.end(draft, group, member_id)
                group.remove(member_id)
            self.prepare(draft, group)
        return draft.decision()

    def assign(self, draft: Draft, group: Group, assignments: dict[str, bytes]) -> None:
        """The leader has assigned: log it, and tell everybody once it is committed."""
        members = list(group.members.values())
        draft.records.append(group_record(group, members, assignments, group.leader_id))
        draft.then = partial(self._assigned, group.group_id)

    def _assigned(
        self, group_id: str, error: KafkaError | None, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        draft = Draft(turn)
        group = self._groups[group_id]
        self.propagate(draft, group, error)
        if error is not None:
            self.members_changed(draft, group)
        return draft.decision()

    def propagate(self, draft: Draft, group: Group, error: KafkaError | None) -> None:
        """Answer every parked SyncGroup, with the member's assignment or an error."""
        for member in group.members.values():
            if error is not None:
                member.assignment = b""
            draft.answer_sync(member, assigned(group, member) if error is None else error)
            # A session that ended while the member was parked was passed over: it begins anew.
            self._sessions.extend(draft, group, member)

    # -- leaving ---------------------------------------------------------------------------------

    def remove(self, draft: Draft, group: Group, member: Member) -> None:
        """Let a member go, telling it so if it waits."""
        unknown = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        draft.answer_join(member, unknown)
        draft.answer_sync(member, unknown)
        self._sessions.end(draft, group, member.member_id)
        group.remove(member.member_id)


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """The answer to a member of the current generation; its leader hears who the others are."""
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
    """What the leader gave to a member."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
