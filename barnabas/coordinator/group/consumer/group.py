"""A consumer group: members, targets, and what members have. It has no I/O and no decisions.

Logged state changes by `replay.py` only. A member is replaced as a whole, so that a decision can
compare the one before with the one after it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.states import ConsumerGroupState, MemberState
from barnabas.coordinator.group.group import (
    CONSUMER,
    MEMBER_BYTES,
    PROTOCOL_BYTES,
    MemoryShare,
    Protocols,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_group import ClassicMemberMetadata, ClassicProtocol

JOIN: Final = 0
"""The epoch with which a member joins."""
LEAVE: Final = -1
"""The epoch with which a member leaves."""
LEAVE_STATIC: Final = -2
"""The epoch with which a static member leaves that comes back; it then stands in its record."""
FIRST_EPOCH: Final = 1
"""The epoch of a new group, in which no member has partitions (KAFKA-20268)."""

TOPIC_BYTES: Final = 150
"""The approximate memory of a subscription to a topic, without its name."""

Partitions = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which the member got it (KIP-1251)."""
Target = Mapping[bytes, frozenset[int]]
"""The partitions of a target assignment, by topic id."""
NO_PARTITIONS: Final[Partitions] = {}
NO_TARGET: Final[Target] = {}

_NO_VERSION: Final = -1
_new = tuple.__new__


class ConsumerMember(NamedTuple):
    """A member: its subscription, its epoch and its partitions."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The subscribed names, sorted."""
    expression: str = ""
    """The subscribed regular expression; "" for none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """The part of a member that speaks the classic protocol."""
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """Partitions that it has to give up, and may still use."""

    @property
    def used(self) -> Partitions:
        """The partitions that it has, or has not given up yet."""
        used = {topic_id: dict(indexes) for topic_id, indexes in self.assigned.items()}
        for topic_id, indexes in self.revoking.items():
            used.setdefault(topic_id, {}).update(indexes)
        return used

    @property
    def size(self) -> int:
        """The memory of the member without its partitions, about."""
        size = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.expression)
        size += len(self.instance_id or "") + len(self.rack_id or "")
        for name in self.topics:
            size += TOPIC_BYTES + len(name)
        for name, data in self.protocols:
            size += PROTOCOL_BYTES + len(name) + len(data)
        return size

    @property
    def protocols(self) -> Protocols:
        """The protocols of a member that speaks the classic protocol."""
        if self.classic is None:
            return ()
        return tuple((each.name, each.metadata) for each in self.classic.supported_protocols)

    def moved(
        self,
        *,
        epoch: int,
        previous_epoch: int,
        state: MemberState,
        assigned: Partitions,
        revoking: Partitions,
    ) -> "ConsumerMember":
        """Return the member after a step; `_replace` costs four times as much."""
        step = epoch, previous_epoch, state, assigned, revoking
        return _new(ConsumerMember, self[:EPOCH_AT] + step)

    def is_at(self, assignment_epoch: int) -> bool:
        """Return whether the member has its target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owns(self, topic_id: bytes, partition: int) -> bool:
        """Return whether a partition is assigned to the member."""
        return partition in self.assigned.get(topic_id, ())


EPOCH_AT: Final = ConsumerMember._fields.index("epoch")
"""The fields of a member from here on are those that `ConsumerGroup.move` changes."""


def classic_part(session_timeout_ms: int, protocols: Protocols) -> ClassicMemberMetadata:
    """Return the part of a member that speaks the classic protocol."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in protocols],
    )


class ResolvedExpression(NamedTuple):
    """The topics that an expression matched, at a version of the metadata and a time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class Session:
    """The session of a member: when it ends and when its timer fires, in monotonic time; and the
    memory of the member."""

    memory: MemoryShare
    deadline_ms: int = 0
    timer_ms: int | None = None
    must_join: bool = False
    """Whether a classic member was asked to join again."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group in memory."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assigned_at_ms: int = 0
    """When the target assignment was computed."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    expressions: dict[str, ResolvedExpression] = field(default_factory=dict)

    # What follows from the members.
    static_ids: dict[str, str] = field(default_factory=dict)
    subscribers: dict[str, int] = field(default_factory=dict)
    """The number of members that subscribe to a topic by its name."""
    expression_users: dict[str, int] = field(default_factory=dict)
    assignor_votes: dict[str, int] = field(default_factory=dict)
    classic_members: int = 0
    classic_protocols: dict[str, int] = field(default_factory=dict)
    """The number of classic members that support a protocol."""
    owners: dict[bytes, dict[int, str]] = field(default_factory=dict)
    """The member that has a partition, or has not given it up yet."""

    # Volatile state.
    sessions: dict[str, Session] = field(default_factory=dict, compare=False, repr=False)
    checked: tuple[int, int] = field(default=(-1, 0), compare=False)
    """The version of the topics at which the hash of the metadata was computed last, and that
    hash, which may not be committed."""
    _state: ConsumerGroupState | None = field(default=None, compare=False, repr=False)

    @property
    def state(self) -> ConsumerGroupState:
        if self._state is None:
            self._state = self._derived_state()
        return self._state

    def _derived_state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_at(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def has_seen(self, version: int) -> bool:
        """Return whether the hash of the metadata is that of this version of the topics."""
        return self.checked == (version, self.metadata_hash)

    def forget_versions(self) -> None:
        """Let expressions be resolved again: each broker counts the versions of its topics, and
        those in the log may be another's."""
        for text, resolved in self.expressions.items():
            self.expressions[text] = resolved._replace(version=_NO_VERSION)

    def changed(self) -> None:
        """Derive the state again when it is asked for: epochs or members have changed."""
        self._state = None

    def copy(self) -> "ConsumerGroup":
        """Return a group with the same logged state."""
        group = ConsumerGroup(
            self.group_id,
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assigned_at_ms,
            targets=dict(self.targets),
            expressions=dict(self.expressions),
        )
        for member in self.members.values():
            group.put(member)
        return group

    # -- members -----------------------------------------------------------------------------------

    def require(self, member_id: str) -> ConsumerMember:
        """Return a member; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def require_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return a static member; raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        known = self.static_ids.get(instance_id)
        if known is None:
            text = f"Instance id {instance_id} is unknown."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        if known != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{known}.",
            )
        return self.members[known]

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one with its id."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._unlink(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        _add(self.subscribers, member.topics)
        if member.expression:
            _add(self.expression_users, (member.expression,))
        if member.assignor is not None:
            _add(self.assignor_votes, (member.assignor,))
        if member.classic is not None:
            self.classic_members += 1
            _add(self.classic_protocols, {name for name, _ in member.protocols})
        self._own(member)
        self.changed()

    def move(self, member: ConsumerMember) -> None:
        """Replace a member of which the epochs, the state and the partitions alone have changed."""
        self._disown(self.members[member.member_id])
        self.members[member.member_id] = member
        self._own(member)
        self.changed()

    def remove(self, member_id: str) -> None:
        """Remove a member, if it is known."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._unlink(member)
            self.changed()

    def _unlink(self, member: ConsumerMember) -> None:
        member_id, instance_id = member.member_id, member.instance_id
        # What another member has by now is its own.
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        _subtract(self.subscribers, member.topics)
        if member.expression:
            _subtract(self.expression_users, (member.expression,))
        if member.assignor is not None:
            _subtract(self.assignor_votes, (member.assignor,))
        if member.classic is not None:
            self.classic_members -= 1
            _subtract(self.classic_protocols, {name for name, _ in member.protocols})
        self._disown(member)

    def _own(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                owners = self.owners.setdefault(topic_id, {})
                for index in indexes:
                    owners[index] = member.member_id

    def _disown(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                owners = self.owners.get(topic_id, {})
                for index in indexes:
                    if owners.get(index) == member.member_id:
                        del owners[index]
                if not owners:
                    self.owners.pop(topic_id, None)

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Return whether no member has the partition."""
        return partition not in self.owners.get(topic_id, ())

    def awaits(self, member: ConsumerMember) -> bool:
        """Return whether another member still has a part of a member's target."""
        return any(
            not self.is_free(topic_id, index)
            for topic_id, indexes in self.targets.get(member.member_id, NO_TARGET).items()
            for index in indexes
            if not member.owns(topic_id, index)
        )

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a classic member has a protocol in common with the others."""
        return protocol_type == CONSUMER and any(
            self.classic_protocols.get(name, 0) == self.classic_members for name, _ in protocols
        )

    # -- subscriptions -----------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> Iterable[str]:
        """Return the names of the topics to which a member subscribes."""
        resolved = self.expressions.get(member.expression)
        return member.topics if resolved is None else resolved.topics.union(member.topics)

    def subscribed(self) -> set[str]:
        """Return the names of the topics to which some member subscribes."""
        names = set(self.subscribers)
        for expression in self.expression_users:
            resolved = self.expressions.get(expression)
            if resolved is not None:
                names.update(resolved.topics)
        return names

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic."""
        return topic in self.subscribers or any(
            topic in self.expressions[each].topics
            for each in self.expression_users
            if each in self.expressions
        )

    def assignor(self, assignors: tuple[str, ...]) -> str:
        """Return the assignor of the group."""
        return elected(self.assignor_votes, assignors)


def elected(votes: dict[str, int], assignors: tuple[str, ...]) -> str:
    """Return the assignor that most members chose; of equal ones the first that is configured."""
    if not votes:
        return assignors[0]
    return max(assignors, key=lambda name: votes.get(name, 0))


def _add(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _subtract(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
