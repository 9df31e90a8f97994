"""A decision while it is being made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinator.decision import (
    Answer,
    CancelTimer,
    Decide,
    Decision,
    Effect,
    StartTimer,
    Ticket,
    TimerKey,
    Turn,
)
from barnabas.coordinator.group.group import Group, Member
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.protocol.errors import KafkaError

Then = Callable[[KafkaError | None, Turn], Decision[GroupCoordinatorRecord]]


@dataclass(slots=True)
class Draft:
    """What one turn has come to so far."""

    turn: Turn
    records: list[GroupCoordinatorRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    then: Then | None = None

    def decision(self, response: Any = None) -> Decision[GroupCoordinatorRecord]:
        """All of it, with what the asker of this turn is told."""
        return Decision(self.records, response, self.effects, self.then)

    def answer(self, ticket: Ticket, response: Any) -> None:
        self.effects.append(Answer(ticket, response))

    def answer_join(self, member: Member, response: Any) -> None:
        """Answer the member's parked JoinGroup, if there is one."""
        if member.joining is not None:
            self.answer(member.joining, response)
            member.joining = None

    def answer_sync(self, member: Member, response: Any) -> None:
        """Answer the member's parked SyncGroup, if there is one."""
        if member.syncing is not None:
            self.answer(member.syncing, response)
            member.syncing = None

    def start(self, key: TimerKey, delay_ms: int, group: Group, decide: Decide) -> None:
        self.effects.append(StartTimer(key, delay_ms, group.group_id, decide))

    def cancel(self, key: TimerKey) -> None:
        self.effects.append(CancelTimer(key))
