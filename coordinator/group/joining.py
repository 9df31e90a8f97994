"""JoinGroup: who may come into a group, and under which id."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from barnabas.coordinator.decision import PARKED, Decision, Ticket, Turn
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, Member, Protocols
from barnabas.coordinator.group.rebalance import Rebalance, joined
from barnabas.coordinator.group.records import GroupCoordinatorRecord, group_record
from barnabas.coordinator.group.sessions import Sessions
from barnabas.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9


class Client(NamedTuple):
    """Who joins: what the connection and the request's header say."""

    version: int
    client_id: str
    client_host: str


class Joining:
    """Decides about JoinGroup."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        sessions: Sessions,
        rebalance: Rebalance,
        new_id: Callable[[], str],
    ) -> None:
        """`new_id` gives the random part of member ids."""
        self._groups = groups
        self._settings = settings
        self._sessions = sessions
        self._rebalance = rebalance
        self._new_id = new_id

    def join(
        self, request: JoinGroupRequest, client: Client, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        """Take a member in, or back, and park it until the next generation begins.

        Raises KafkaError: INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL.
        """
        settings = self._settings
        limits = range(settings.min_session_timeout_ms, settings.max_session_timeout_ms + 1)
        if request.session_timeout_ms not in limits:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = Group(request.group_id, turn.now_ms)
        draft = Draft(turn)
        if not group.accepts(request.member_id, settings.max_size):
            self._turn_away(draft, group, request.member_id)
            return draft.decision(KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED))
        if not group.supports(request.protocol_type, _protocols(request)):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            self._groups[request.group_id] = group
            return self._newcomer(draft, group, request, client)
        if request.member_id in group.pending_joins:
            member = self._member(request, client, request.member_id)
            return self._take_in(draft, group, member, request.protocol_type)
        member = group.require_member(request.member_id, request.group_instance_id)
        return self._rejoin(draft, group, member, request)

    def _turn_away(self, draft: Draft, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove(draft, group, member)
        elif member_id in group.pending_joins:
            self._sessions.end(draft, group, member_id)
            group.remove(member_id)

    # -- members that are new to the group -------------------------------------------------------

    def _newcomer(
        self, draft: Draft, group: Group, request: JoinGroupRequest, client: Client
    ) -> Decision[GroupCoordinatorRecord]:
        instance_id = request.group_instance_id
        member_id = f"{client.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_ids:
            member = self._member(request, client, member_id)
            return self._take_over(draft, group, group.static_ids[instance_id], member, client)
        if instance_id is None and client.version >= _MEMBER_ID_REQUIRED_SINCE:
            # KIP-394: a client that never hears its id must not become a member of the group.
            group.pending_joins.add(member_id)
            self._sessions.give_out(draft, group, member_id, request.session_timeout_ms)
            return draft.decision(
                JoinGroupResponse(
                    error_code=ErrorCode.MEMBER_ID_REQUIRED,
                    protocol_name=None if client.version >= _NULL_PROTOCOL_SINCE else "",
                    leader="",
                    member_id=member_id,
                    members=[],
                )
            )
        member = self._member(request, client, member_id)
        return self._take_in(draft, group, member, request.protocol_type)

    def _take_in(
        self, draft: Draft, group: Group, member: Member, protocol_type: str
    ) -> Decision[GroupCoordinatorRecord]:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is GroupState.EMPTY
        ):
            group.newcomers = True
        self._sessions.end(draft, group, member.member_id)
        group.add(member, protocol_type)
        member.is_new = True
        member.joining = draft.turn.ticket
        self._sessions.extend(draft, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.members_changed(draft, group)
        return draft.decision(PARKED)

    @staticmethod
    def _member(request: JoinGroupRequest, client: Client, member_id: str) -> Member:
        return Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout(request),
            protocols=_protocols(request),
        )

    # -- members that come again -----------------------------------------------------------------

    def _rejoin(
        self, draft: Draft, group: Group, member: Member, request: JoinGroupRequest
    ) -> Decision[GroupCoordinatorRecord]:
        unchanged = member.protocols == _protocols(request)
        leads = group.leader_id == member.member_id
        # The leader may know of changes that no metadata shows, such as new partitions.
        if unchanged and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not leads)
        ):
            return draft.decision(joined(group, member))
        member.protocols = _protocols(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        self._park(draft, member)
        self._rebalance.members_changed(draft, group)
        return draft.decision(PARKED)

    @staticmethod
    def _park(draft: Draft, member: Member) -> None:
        """Only the last JoinGroup of a member is waited for: its client has given up earlier."""
        draft.answer_join(member, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        member.joining = draft.turn.ticket

    # -- static members under a new id (KIP-345) -------------------------------------------------

    def _take_over(
        self, draft: Draft, group: Group, old_id: str, member: Member, client: Client
    ) -> Decision[GroupCoordinatorRecord]:
        member.assignment = group.members[old_id].assignment
        if group.state is GroupState.STABLE:
            same_protocol = group.select_protocol(old_id, member) == group.protocol_name
            if same_protocol:
                return self._log_takeover(draft, group, old_id, member, client)
        member.joining = draft.turn.ticket
        self._replace(draft, group, old_id, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.get_on(draft, group)
        else:
            self._rebalance.prepare(draft, group)
        return draft.decision(PARKED)

    def _replace(self, draft: Draft, group: Group, old_id: str, member: Member) -> None:
        old = group.members[old_id]
        fenced = KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        draft.answer_join(old, fenced)
        draft.answer_sync(old, fenced)
        group.replace(old_id, member)
        self._change_session(draft, group, old_id, member)

    def _change_session(self, draft: Draft, group: Group, old_id: str, member: Member) -> None:
        self._sessions.end(draft, group, old_id)
        self._sessions.extend(draft, group, member)

    def _log_takeover(
        self, draft: Draft, group: Group, old_id: str, member: Member, client: Client
    ) -> Decision[GroupCoordinatorRecord]:
        """The assignment passes to the new id without a rebalance, once that is committed."""
        members = [member if key == old_id else each for key, each in group.members.items()]
        assignments = {each.member_id: each.assignment for each in members}
        leader_id = member.member_id if group.leader_id == old_id else group.leader_id
        draft.records.append(group_record(group, members, assignments, leader_id))
        group.takeover = (old_id, member)
        draft.then = partial(self._taken_over, group, draft.turn.ticket, client.version)
        return draft.decision(PARKED)

    def _taken_over(
        self, group: Group, ticket: Ticket, version: int, error: KafkaError | None, turn: Turn
    ) -> Decision[GroupCoordinatorRecord]:
        draft = Draft(turn)
        assert group.takeover is not None
        (old_id, member), group.takeover = group.takeover, None
        if error is not None:
            draft.answer(ticket, error)
            return draft.decision()
        self._change_session(draft, group, old_id, member)
        answer = joined(group, member)
        leads = group.leader_id == member.member_id
        if version >= _SKIP_ASSIGNMENT_SINCE:
            answer.skip_assignment = leads
        elif leads:
            # An older client that hears it leads would assign: it is told of the old leader.
            answer.leader = old_id
            answer.members = []
        draft.answer(ticket, answer)
        return draft.decision()


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((each.name, each.metadata) for each in request.protocols)


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Version 0 has no such field: its session timeout serves for both."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
