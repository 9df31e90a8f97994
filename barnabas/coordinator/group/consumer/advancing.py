"""The way of a member through a request: it is taken in or changed, and takes a step towards its
target.

Members of both protocols go this way.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.coordinator.decision import NOTHING, Instant
from barnabas.coordinator.group.consumer import records, sessions
from barnabas.coordinator.group.consumer.assignment import Assigning
from barnabas.coordinator.group.consumer.downgrade import downgrade, may_downgrade
from barnabas.coordinator.group.consumer.expressions import compiled, refresh_if_due
from barnabas.coordinator.group.consumer.group import (
    JOIN,
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    Target,
)
from barnabas.coordinator.group.consumer.leaving import forget
from barnabas.coordinator.group.consumer.reconciliation import (
    Owned,
    reconciled,
    require_known_state,
)
from barnabas.coordinator.group.consumer.records import ConsumerGroupRecord
from barnabas.coordinator.group.consumer.replay import replay
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import MemoryShare
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps, at_once

A = TypeVar("A")


class Change(NamedTuple):
    """A request of a member of a group, and its effect on the member."""

    group: ConsumerGroup
    member: ConsumerMember
    updated: ConsumerMember
    """The member with what the request tells."""
    replaced: ConsumerMember | None
    """The static member whose place it takes."""
    owned: Owned
    may_describe: Callable[[str], bool] = lambda _: True
    """Whether the client may know a topic: an expression matches no others."""


def require_room(group: ConsumerGroup, member_id: str, most: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a group that has the most members."""
    if len(group.members) >= most and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def successor(known: ConsumerMember, member_id: str) -> ConsumerMember:
    """Return a static member under its new id."""
    return known._replace(member_id=member_id, epoch=JOIN, previous_epoch=0)


def advance(
    draft: Draft, change: Change, answer: A, fill: Callable[[ConsumerMember], None]
) -> GroupDecision[A]:
    """Take a member in, or change it, and let it take a step towards its target; `fill` fills in
    the answer once the step is taken."""
    group, member, updated, replaced, owned, may_describe = change
    expression_changed = updated.expression != member.expression
    if expression_changed and updated.expression:
        compiled(updated.expression)
    memory = None if updated is member else _take_memory(draft, group, updated)
    require_known_state(updated, owned)
    assigning = Assigning(draft, group, member, updated, replaced)
    if replaced is not None:
        _replace(draft, group, replaced, member)
    if updated != member or (updated.member_id not in group.members and replaced is None):
        draft.records.append(records.subscription(group.group_id, updated))
    if expression_changed:
        assigning.forget_unused(member.expression)
    resolved = expression_changed and updated.expression in group.expressions
    bumps = updated.topics != member.topics or resolved
    assigning.advance(bumps=bumps or (expression_changed and not updated.expression))
    if replaced is not None and updated.classic is not None:
        after = _after(draft, group)
        if may_downgrade(draft.table, group, [*after.members.values()]):
            is_stale = assigning.epoch > assigning.assignment_epoch
            return _downgrade(draft, change, answer, fill, rebalances=is_stale)
    if updated.expression or group.expression_users:
        refresh_if_due(draft, group, updated, may_describe)
    _keep_alive(draft, group, updated, memory)
    if assigning.takes_long:
        draft.then = partial(_after_steps, draft, len(draft.effects), draft.then)
        return draft.decision(answer, _assign_and_step(draft, assigning, change, fill))
    if assigning.is_due:
        at_once(assigning.assign())
    _step(draft, assigning, change, fill)
    return draft.decision(answer)


def _after(draft: Draft, group: ConsumerGroup) -> ConsumerGroup:
    """Return the group after the records of a decision."""
    groups = {group.group_id: group.copy()}
    for record in draft.records:
        assert isinstance(record, ConsumerGroupRecord)
        replay(groups, record)
    return groups[group.group_id]


def _downgrade(
    draft: Draft,
    change: Change,
    answer: A,
    fill: Callable[[ConsumerMember], None],
    *,
    rebalances: bool,
) -> GroupDecision[A]:
    """Make a classic group: its last member of the newer protocol is replaced by a classic one.

    Unless it `rebalances`, the member takes a step, and all members keep their targets.
    """
    group, member, replaced = change.group, change.updated, change.replaced
    if not rebalances:
        assert replaced is not None
        target = group.targets.get(replaced.member_id, NO_TARGET)
        subscribed = _subscribed(draft.table, group, member)
        epoch = group.assignment_epoch
        member = reconciled(member, target, epoch, change.owned, group.is_free, subscribed)
        if member != change.updated:
            draft.records.append(records.current(group.group_id, member))
    after = _after(draft, group)
    after.epoch = group.epoch
    downgrade(draft, after, [*after.members.values()], rebalances=rebalances)
    fill(member)
    return draft.decision(answer)


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


def _assign_and_step(
    draft: Draft,
    assigning: Assigning,
    change: Change,
    fill: Callable[[ConsumerMember], None],
) -> Steps[None]:
    yield from assigning.assign()
    _step(draft, assigning, change, fill)


def _step(
    draft: Draft,
    assigning: Assigning,
    change: Change,
    fill: Callable[[ConsumerMember], None],
) -> None:
    """Let a member take a step towards its target. Partitions of topics to which it no longer
    subscribes go at once."""
    before, updated = change.member, change.updated
    loses = before.epoch != JOIN and (
        updated.topics != before.topics or updated.expression != before.expression
    )
    target, epoch = assigning.target, assigning.assignment_epoch
    fill(take_step(draft, change, target, epoch, has_changed=loses))


def take_step(
    draft: Draft,
    change: Change,
    target: Target,
    target_epoch: int,
    *,
    has_changed: bool = False,
) -> ConsumerMember:
    """Return a member after a step towards its target, as `reconciled` does, which is recorded."""
    group, before, updated = change.group, change.member, change.updated
    member = reconciled(
        updated,
        target,
        target_epoch,
        change.owned,
        group.is_free,
        _subscribed(draft.table, group, updated),
        has_changed=has_changed,
    )
    if member != updated:
        draft.records.append(records.current(group.group_id, member))
    # A classic member has its time to join and to ask for its assignment instead.
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
        if member != updated:
            sessions.await_revocation(draft, group.group_id, member)
    elif before.state is MemberState.UNREVOKED_PARTITIONS:
        sessions.end_revocation(draft, group.group_id, member.member_id)
    return member


def _subscribed(
    table: GroupTable, group: ConsumerGroup, member: ConsumerMember
) -> Callable[[bytes], bool]:
    """Return a function that says whether a member subscribes to a topic, by its id."""
    names = frozenset(group.topics_of(member))
    return lambda topic_id: table.topics.name_of(topic_id) in names


def _replace(
    draft: Draft, group: ConsumerGroup, old: ConsumerMember, member: ConsumerMember
) -> None:
    """Give the place of a static member to a new id."""
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


def _keep_alive(
    draft: Draft, group: ConsumerGroup, member: ConsumerMember, memory: MemoryShare | None
) -> None:
    """Extend the member's session; a new one begins once the member's records are committed, and
    the time of a classic member to ask for its assignment."""
    known = member.member_id in group.sessions
    if known:
        sessions.extend_session(draft, group, member.member_id)
    if not known or member.classic is not None:
        # The group may be a new one, which is another object in memory.
        table, checked = draft.table, group.checked
        draft.afterwards(partial(_joined, table, group.group_id, member.member_id, memory, checked))


def _joined(
    table: GroupTable,
    group_id: str,
    member_id: str,
    memory: MemoryShare | None,
    checked: tuple[int, int],
    error: KafkaError | None,
    now: Instant,
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if error is None and group is not None and member is not None:
        group.checked = checked
        sessions.extend_session(draft, group, member_id, memory)
        if member.classic is not None:
            sessions.await_sync(draft, group, member)
    return draft.decision(None)
