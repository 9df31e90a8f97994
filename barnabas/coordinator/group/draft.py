"""A decision about a group while it is being made."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from barnabas.coordinator.decision import (
    AT_ONCE,
    Call,
    CancelTimer,
    Decision,
    DeferredAnswer,
    Instant,
    StartTimer,
    TimerKey,
)
from barnabas.coordinator.group.consumer.records import group_epoch
from barnabas.coordinator.group.group import Group, Member
from barnabas.coordinator.group.records import GroupCoordinatorRecord
from barnabas.coordinator.group.states import CONSUMER
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.protocol.steps import Steps

A = TypeVar("A")
_new = tuple.__new__


@dataclass(slots=True)
class Draft:
    """The records and effects that a decision has so far."""

    table: GroupTable
    now: Instant
    records: list[GroupCoordinatorRecord] = field(default_factory=list)
    effects: list[StartTimer[GroupCoordinatorRecord] | CancelTimer | Call] = field(
        default_factory=list
    )
    then: Callable[[KafkaError | None, Instant], GroupDecision[None]] | None = None
    whole: bool = False
    """Whether the group becomes one of the other type, and is neither in between."""

    def decision(
        self, answer: A | KafkaError | DeferredAnswer[A], steps: Steps[None] | None = None
    ) -> GroupDecision[A]:
        """Return the decision, with the answer to the request; `steps` adds further records."""
        fields = answer, self.records, self.effects, self.then, None, steps, False, self.whole
        return _new(Decision, fields)

    def afterwards(self, then: Callable[[KafkaError | None, Instant], GroupDecision[None]]) -> None:
        """Make a further decision once the records are committed or refused."""
        self.then = then if self.then is None else partial(_both, self.then, then)

    def collect(self, found: Iterable[GroupCoordinatorRecord | None]) -> Steps[None]:
        """Add records in steps."""
        for number, record in enumerate(found):
            if number and not number % AT_ONCE:
                yield None
            if record is not None:
                self.records.append(record)

    def begin_epoch(self, group_id: str, epoch: int, metadata_hash: int, reason: str) -> None:
        """Begin the next epoch of a consumer group."""
        self.records.append(group_epoch(group_id, epoch, metadata_hash))
        self.table.counts.consumer_rebalances += 1
        self.table.rebalances(group_id, CONSUMER, reason)

    def answer(self, deferred: DeferredAnswer[A], answer: A | KafkaError) -> None:
        """Answer an earlier request."""
        self.effects.append(Call(partial(deferred.give, answer)))

    def answer_join(self, member: Member, answer: JoinGroupResponse | KafkaError) -> None:
        """Answer the member's JoinGroup, if one waits."""
        if member.joining is not None:
            self.answer(member.joining, answer)
            member.joining = None

    def answer_sync(self, member: Member, answer: SyncGroupResponse | KafkaError) -> None:
        """Answer the member's SyncGroup, if one waits."""
        if member.syncing is not None:
            self.answer(member.syncing, answer)
            member.syncing = None

    def start(
        self,
        timer: TimerKey,
        delay_ms: int,
        group: Group,
        decide: Callable[[Instant], GroupDecision[None]],
    ) -> None:
        self.effects.append(StartTimer(timer, delay_ms, group.group_id, decide))

    def cancel(self, timer: TimerKey) -> None:
        self.effects.append(CancelTimer(timer))


def _both(
    first: Callable[[KafkaError | None, Instant], GroupDecision[None]],
    second: Callable[[KafkaError | None, Instant], GroupDecision[None]],
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    one, two = first(error, now), second(error, now)
    return one._replace(records=[*one.records, *two.records], effects=[*one.effects, *two.effects])
