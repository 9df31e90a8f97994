"""SyncGroup, Heartbeat, LeaveGroup and the end of sessions."""

from barnabas.coordinator.decision import PARKED, Decision, Turn
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.rebalance import Rebalance, assigned
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.coordinator.group.sessions import Sessions
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest


class Membership:
    """Decides about those who are members already. Raises KafkaError as Kafka answers."""

    def __init__(self, groups: dict[str, Group], rebalance: Rebalance, sessions: Sessions) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._sessions = sessions

    def _group(self, group_id: str) -> Group:
        """A group that must be there: members of one that is not are unknown."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # -- SyncGroup -------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Take the leader's assignments, and give each member its own."""
        group = self._group(request.group_id)
        member = group.require_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, group.protocol_type) or _differ(
            request.protocol_name, group.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        draft = Draft(turn)
        self._rebalance.synced(draft, group, member.member_id)
        if group.state is GroupState.STABLE:
            return draft.decision(assigned(group, member))
        # Only the last SyncGroup of a member is waited for: its client has given up earlier.
        draft.answer_sync(member, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = turn.ticket
        if group.leader_id == member.member_id:
            assignments = {each.member_id: each.assignment for each in request.assignments}
            self._rebalance.assign(draft, group, assignments)
        return draft.decision(PARKED)

    # -- Heartbeat -------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Keep a session alive; the member is told when it has to join again."""
        group = self._group(request.group_id)
        member = group.require_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        draft = Draft(turn)
        self._sessions.extend(draft, group, member)
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        return draft.decision(
            HeartbeatResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
            )
        )

    # -- LeaveGroup ------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """Let members go, one result each. Static ones may be named by instance alone."""
        group = self._groups.get(request.group_id)
        draft = Draft(turn)
        results = []
        for each in request.members:
            error = ErrorCode.NONE
            try:
                if group is None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._leave(draft, group, each)
            except KafkaError as refused:
                error = refused.code
            results.append(
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=error,
                )
            )
        if group and any(result.error_code == ErrorCode.NONE for result in results):
            self._members_left(draft, group)
        return draft.decision(LeaveGroupResponse(members=results))

    def _leave(self, draft: Draft, group: Group, leaving: MemberIdentity) -> None:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            member_id = group.static_ids.get(instance_id or "", "")
            if not member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        elif member_id in group.pending_joins:
            self._sessions.end(draft, group, member_id)
            group.remove(member_id)
            return
        member = group.require_member(member_id, instance_id)
        self._rebalance.remove(draft, group, member)

    def _members_left(self, draft: Draft, group: Group) -> None:
        # An empty group may have lost only ids that had not joined.
        if group.state is not GroupState.EMPTY:
            self._rebalance.members_changed(draft, group)

    # -- sessions --------------------------------------------------------------------------------

    def expired(
        self, group_id: str, member_id: str, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        """A session's timer has fired: remove the member, unless it has been heard since."""
        draft = Draft(turn)
        group = self._groups.get(group_id)
        if group is None:
            return draft.decision()
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                group.remove(member_id)
                self._rebalance.get_on(draft, group)
            return draft.decision()
        if not self._sessions.fired(draft, group, member):
            return draft.decision()
        # A parked member cannot send heartbeats; a new one is given up all the same, because its
        # client may be gone and would come back under another id.
        if member.is_new or (member.joining is None and member.syncing is None):
            self._rebalance.remove(draft, group, member)
            self._rebalance.members_changed(draft, group)
        return draft.decision()

    def resume(self, turn: Turn) -> Decision[GroupCoordinatorRecord]:
        """After a load nobody has been heard yet: every member has a whole session."""
        draft = Draft(turn)
        for group in self._groups.values():
            for member in group.members.values():
                self._sessions.extend(draft, group, member)
        return draft.decision()


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
