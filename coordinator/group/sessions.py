"""Sessions of members: whoever is silent for too long is out."""

from collections.abc import Callable
from functools import partial

from barnabas.coordinator.decision import Decision, TimerKey, Turn
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, Member
from barnabas.coordinator.group.records import GroupCoordinatorRecord

Expired = Callable[[str, str, Turn], Decision[GroupCoordinatorRecord]]


def session_key(group: Group, member_id: str) -> TimerKey:
    """The timer of a member's session, or of a member id that was given out."""
    return ("session", group.group_id, member_id)


class Sessions:
    """Deadlines of members. A heartbeat only moves the deadline: the timer, when it fires too
    early, is started anew for the rest. So a heartbeat costs no timer."""

    def __init__(self, expired: Expired) -> None:
        """`expired` decides for a group id and member id whose timer has fired."""
        self._expired = expired

    def extend(
        self, draft: Draft, group: Group, member: Member, timeout_ms: int | None = None
    ) -> None:
        """The member has been heard; by default it has its session timeout from now."""
        now_ms = draft.turn.monotonic_ms
        member.deadline_ms = now_ms + (
            member.session_timeout_ms if timeout_ms is None else timeout_ms
        )
        if member.timer_ms is None or member.deadline_ms < member.timer_ms:
            self._start(draft, group, member)

    def fired(self, draft: Draft, group: Group, member: Member) -> bool:
        """The member's timer has fired; True where its deadline has passed."""
        member.timer_ms = None
        if draft.turn.monotonic_ms >= member.deadline_ms:
            return True
        self._start(draft, group, member)
        return False

    def give_out(self, draft: Draft, group: Group, member_id: str, timeout_ms: int) -> None:
        """A member id was given out: it must join within the timeout."""
        decide = partial(self._expired, group.group_id, member_id)
        draft.start(session_key(group, member_id), timeout_ms, group, decide)

    def end(self, draft: Draft, group: Group, member_id: str) -> None:
        """The member is no more."""
        draft.cancel(session_key(group, member_id))

    def _start(self, draft: Draft, group: Group, member: Member) -> None:
        member.timer_ms = member.deadline_ms
        delay_ms = member.deadline_ms - draft.turn.monotonic_ms
        decide = partial(self._expired, group.group_id, member.member_id)
        draft.start(session_key(group, member.member_id), delay_ms, group, decide)
