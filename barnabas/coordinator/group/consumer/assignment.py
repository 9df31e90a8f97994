"""The epoch of a group and its target assignment, while a heartbeat is being decided."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec
from barnabas.coordinator.group.consumer.group import (
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    Target,
    elected,
)
from barnabas.coordinator.group.consumer.topics import hash_of_topics
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.table import GroupTable, named
from barnabas.protocol.steps import Steps

_new = tuple.__new__
_MANY: Final = 100
"""The members of a group whose assignment is computed in steps, outside of the event loop."""


def is_due(table: GroupTable, group: ConsumerGroup, epoch: int, now: Instant) -> bool:
    """Return whether a target assignment for this epoch of a group is to be computed now."""
    waited_ms = now.wall_ms - group.assigned_at_ms
    return epoch > group.assignment_epoch and not (
        0 <= waited_ms < table.settings_of(group.group_id).assignment_interval_ms
    )


class Assigning:
    """A group as it will be with a changed member: its records follow from the decision."""

    def __init__(
        self,
        draft: Draft,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
    ) -> None:
        """`replaced` is the static member whose place `updated` takes."""
        self._draft = draft
        self._table = draft.table
        self.group = group
        self._member = member
        self._updated = updated
        self._replaced = replaced
        self._forgotten: str | None = None
        self._target: Target | None = None
        self.is_due = False
        """Whether the target assignment is to be computed again."""
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch

    def _members(self) -> Iterator[ConsumerMember]:
        """Yield the members as they will be."""
        known = self._replaced or self._member
        found = False
        for each in self.group.members.values():
            if each.member_id == known.member_id:
                found = True
                yield self._updated
            else:
                yield each
        if not found:
            yield self._updated

    def _topics_of(self, member: ConsumerMember) -> Iterable[str]:
        return self.group.topics_of(member)

    def forget_unused(self, expression: str) -> None:
        """Delete what an expression matched that no member uses any more."""
        group = self.group
        if expression in group.expressions and group.expression_users.get(expression) == 1:
            name = group.group_id
            self._draft.records.append(records.tombstone(records.EXPRESSION, name, expression))

    def advance(self, *, bumps: bool) -> None:
        """Begin the next epoch of the group if `bumps`, or if its assignor or topics have
        changed."""
        group, version = self.group, self._table.topics.version
        if self._member.assignor != self._updated.assignor:
            assignors = self._table.settings_of(group.group_id).assignors
            bumps = bumps or self._assignor(assignors) != group.assignor(assignors)
        if bumps or not group.has_seen(version):
            self._look_at_topics(version, bumps=bumps)
        self.is_due = is_due(self._table, group, self.epoch, self._draft.now)

    def _look_at_topics(self, version: int, *, bumps: bool) -> None:
        group = self.group
        metadata_hash = hash_of_topics(self._table.topics, self._subscribed())
        if bumps or metadata_hash != group.metadata_hash:
            self.epoch += 1
            self._draft.begin_epoch(group.group_id, self.epoch, metadata_hash, self._why(bumps))
        group.checked = version, metadata_hash

    def _why(self, bumps: bool) -> str:
        """Return the reason of the next epoch."""
        if not bumps:
            return "the topics of the group have changed"
        known = self._replaced or self._updated
        does = "changes its subscription" if known.member_id in self.group.members else "joins"
        return f"{named([self._updated.member_id])} {does}"

    def _subscribed(self) -> set[str]:
        """Return the topics to which some member will subscribe: the counts save a look at all
        members."""
        group, known = self.group, self._replaced or self._member
        gone = known if known.member_id in group.members else ConsumerMember("")
        names = {name for name, count in group.subscribers.items() if count > (name in gone.topics)}
        for text, count in group.expression_users.items():
            if text in group.expressions and count > (text == gone.expression):
                names |= group.expressions[text].topics
        return names.union(self._topics_of(self._updated))

    @property
    def target(self) -> Target:
        """The target of the changed member."""
        if self._target is None:
            known = self._replaced or self._updated
            return self.group.targets.get(known.member_id, NO_TARGET)
        return self._target

    @property
    def takes_long(self) -> bool:
        """Whether `assign`, which is due, may hold the event loop."""
        return self.is_due and len(self.group.members) >= _MANY

    def assign(self) -> Steps[None]:
        """Compute the target assignment, and add the records of members whose target changes."""
        group, draft = self.group, self._draft
        offloads = self.takes_long and self._table.offload is not None
        topics: dict[bytes, int] = {}
        known_ids: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
        specs: dict[str, MemberSpec] = {}
        for each in list(self._members()):
            yield None
            subscription = each.topics, each.expression
            ids = known_ids.get(subscription)
            if ids is None:
                ids = known_ids[subscription] = frozenset(self._ids(each, topics))
            spec = ids, each.instance_id, self._known_target(each)
            specs[each.member_id] = _new(MemberSpec, spec)
        settings = self._table.settings_of(group.group_id)
        assignor = ASSIGNORS[self._assignor(settings.assignors)]
        if offloads and settings.offloads_assignment:
            assert self._table.offload is not None
            assignment = yield self._table.offload(partial(assignor, specs, topics))
        else:
            assignment = assignor(specs, topics)
        for member_id in specs:
            yield None
            new = {
                topic_id: frozenset(indexes)
                for topic_id, indexes in assignment.get(member_id, {}).items()
                if indexes
            }
            known = group.targets.get(member_id)
            if self._replaced is not None and member_id == self._updated.member_id:
                known = group.targets.get(self._replaced.member_id)
            if new != known:
                draft.records.append(records.target(group.group_id, member_id, new))
            if member_id == self._updated.member_id:
                self._target = new
        self.assignment_epoch = self.epoch
        draft.records.append(records.target_epoch(group.group_id, self.epoch, draft.now.wall_ms))

    def _known_target(self, member: ConsumerMember) -> Target:
        if self._replaced is not None and member is self._updated:
            return self.group.targets.get(self._replaced.member_id, NO_TARGET)
        return self.group.targets.get(member.member_id, NO_TARGET)

    def _assignor(self, assignors: tuple[str, ...]) -> str:
        votes = dict(self.group.assignor_votes)
        if self._member.assignor is not None:
            votes[self._member.assignor] = votes.get(self._member.assignor, 0) - 1
        if self._updated.assignor is not None:
            votes[self._updated.assignor] = votes.get(self._updated.assignor, 0) + 1
        return elected(votes, assignors)

    def _ids(self, member: ConsumerMember, topics: dict[bytes, int]) -> Iterator[bytes]:
        """Yield the ids of the topics to which a member subscribes, and add their partitions."""
        for topic in map(self._table.topics.find, self._topics_of(member)):
            if topic is not None:
                topics[topic.topic_id] = topic.partitions
                yield topic.topic_id
