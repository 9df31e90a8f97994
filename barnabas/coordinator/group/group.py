"""A classic group: its members, its generation, and its protocol. It has no I/O and no
decisions."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final

from barnabas.coordinator.decision import DeferredAnswer
from barnabas.coordinator.group.states import GroupState, check_transition
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

CONSUMER = "consumer"
"""The protocol type whose subscriptions a coordinator can read."""

_SUBSCRIPTION: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a member, the preferred one first, each with the member's metadata."""

MEMBER_BYTES: Final = 2048
"""The memory of a member without its metadata, about."""
PROTOCOL_BYTES: Final = 150
"""The approximate memory of a protocol, without its name and metadata."""
PENDING_BYTES: Final = 1024
"""The memory of a member id that has been given out, about."""
NOT_SETTLED: Final = -1
"""The time of the state of a group with members whose partitions are not all assigned: it was a
consumer group, and has to rebalance, also after a fail-over."""
GROUP_BYTES: Final = 1024
"""The memory of a group that JoinGroup has created, without its members, about."""


class MemberMemory:
    """The memory of all members that are coordinated here (`group.members.max.bytes`)."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.used = 0


class MemoryShare:
    """The memory of one member. It comes free when the object does."""

    __slots__ = ("_memory", "_size")

    def __init__(self, memory: MemberMemory) -> None:
        self._memory = memory
        self._size = 0

    def take(self, size: int) -> "MemoryShare":
        """Take `size` bytes in all. Raises COORDINATOR_NOT_AVAILABLE if there is no room."""
        if size > self._size and self._memory.used + size - self._size > self._memory.limit:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.keep(size)

    def keep(self, size: int) -> "MemoryShare":
        """Count `size` bytes of a member that is there already."""
        self._memory.used += size - self._size
        self._size = size
        return self

    def __del__(self) -> None:
        self._memory.used -= self._size


def member_bytes(protocols: Protocols, assignment: bytes = b"") -> int:
    """Return the memory of a member with these protocols and this assignment, about."""
    sizes = sum(len(name) + len(metadata) for name, metadata in protocols)
    return MEMBER_BYTES + PROTOCOL_BYTES * len(protocols) + sizes + len(assignment)


@dataclass(slots=True)
class Member:
    """A member. Timeouts in ms; `assignment` is the leader's of the last generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    memory: MemoryShare = field(compare=False)
    assignment: bytes = b""
    joining: DeferredAnswer[JoinGroupResponse] | None = None
    """The response to its JoinGroup, while it waits."""
    syncing: DeferredAnswer[SyncGroupResponse] | None = None
    """The response to its SyncGroup, while it waits."""
    is_new: bool = False
    """Not in any generation yet."""
    deadline_ms: int = 0
    """When its session ends, in monotonic time."""
    timer_ms: int | None = None
    """When its session's timer fires, in monotonic time; None where none runs."""

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol; b"" if it does not support it."""
        return metadata(self.protocols, protocol)

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol that it prefers among those that every member supports."""
        return next(name for name, _ in self.protocols if name in candidates)


def metadata(protocols: Protocols, protocol: str) -> bytes:
    """Return the metadata for one of a member's protocols; b"" if it does not support it."""
    return next((data for name, data in protocols if name == protocol), b"")


@dataclass(slots=True)
class Group:
    """A group in memory. The logged part of it is in `records.py`."""

    group_id: str
    state_timestamp_ms: int
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Member id by group.instance.id (KIP-345)."""
    pending_joins: dict[str, MemoryShare] = field(default_factory=dict)
    """Member ids given out that have not joined yet (KIP-394)."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members of this generation that have not sent SyncGroup yet."""
    newcomers: bool = False
    """A member joined during the initial delay, which may then be extended (KIP-134)."""
    subscribed_topics: frozenset[str] | None = frozenset()
    """None if the subscriptions cannot be read."""
    supporters: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """The number of members that support a protocol: a JoinGroup need not look at all members."""
    memory: MemoryShare | None = field(default=None, compare=False)
    """None for a group from the log."""
    takeover: tuple[str, Member] | None = None
    """A static member that takes over an id, until that is committed: the old id, and itself."""

    # -- state -----------------------------------------------------------------------------------

    def transition(self, target: GroupState, now_ms: int) -> None:
        """Go to another state; raises IllegalTransition."""
        check_transition(self.state, target)
        self.previous_state, self.state = self.state, target
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in (
            GroupState.EMPTY,
            GroupState.STABLE,
            GroupState.COMPLETING_REBALANCE,
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> int:
        """The number of members whose JoinGroup waits."""
        return sum(each.joining is not None for each in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_joins and all(
            each.joining is not None for each in self.members.values()
        )

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    # -- members ---------------------------------------------------------------------------------

    def require_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member; raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it was replaced."""
        found = self.find_member(member_id, instance_id)
        if isinstance(found, ErrorCode):
            raise KafkaError(found)
        return found

    def find_member(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """Return the member, or the error of `require_member`."""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return self.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a new member; the first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.restore(member)
        self.pending_joins.pop(member.member_id, None)

    def restore(self, member: Member) -> None:
        """Take in a member of the group's record."""
        self.members[member.member_id] = member
        self.supporters.update(_names(member.protocols))
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace the protocols of a member."""
        self._forget_protocols(member)
        member.protocols = protocols
        self.supporters.update(_names(protocols))

    def _forget_protocols(self, member: Member) -> None:
        for name in _names(member.protocols):
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, also one that has not joined yet; the next one leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_protocols(member)
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        return member

    def replace(self, old_id: str, member: Member) -> None:
        """Replace the id of a static member, at its old position (KIP-345)."""
        self._forget_protocols(self.members[old_id])
        self.supporters.update(_names(member.protocols))
        self.members = {
            member.member_id if each == old_id else each: member if each == old_id else known
            for each, known in self.members.items()
        }
        if self.leader_id == old_id:
            self.leader_id = member.member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(member.member_id)
        assert member.instance_id is not None
        self.static_ids[member.instance_id] = member.member_id

    def accepts(self, member_id: str, max_size: int) -> bool:
        """Whether a client may join, by group.max.size."""
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # Only members that have joined count: the slowest of too many are rejected.
            known = member is not None and member.joining is not None
            return known or len(self.members) < max_size or self.awaiting_join < max_size
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(self.members) < max_size
        return True

    def elect_joined_leader(self) -> bool:
        """Choose a leader that has rejoined; False if no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((each for each in self.members.values() if each.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def adopt(self, generation: int, assignments: dict[str, bytes], timestamp_ms: int) -> None:
        """Apply a committed record: a static member's new id, and the leader's assignments."""
        assert generation == self.generation, "a group moved on while its record was under way"
        if self.takeover is not None:
            self.replace(*self.takeover)
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.transition(GroupState.STABLE, timestamp_ms)

    # -- protocols -------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether these protocols have one in common with those of every member."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        counts = map(self.supporters.get, _names(protocols))
        return len(self.members) in counts

    def _candidates(self, replacing: str = "", instead: Member | None = None) -> set[str]:
        of_all = len(self.members)
        if instead is None:
            return {name for name, count in self.supporters.items() if count == of_all}
        replaced = _names(self.members[replacing].protocols)
        return {
            name
            for name in _names(instead.protocols)
            if self.supporters[name] - (name in replaced) == of_all - 1
        }

    def select_protocol(self, replacing: str = "", instead: Member | None = None) -> str | None:
        """Return the protocol with the most votes, of those that every member supports.

        With `replacing`, the result if `instead` took the place of that member; None if they have
        no protocol in common.
        """
        candidates = self._candidates(replacing, instead)
        if not candidates:
            return None
        votes: Counter[str] = Counter()
        for key, member in self.members.items():
            voter = instead if key == replacing and instead is not None else member
            votes[voter.vote(candidates)] += 1
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation with the present members; an empty one without members."""
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition(GroupState.EMPTY, now_ms)
        self.read_subscriptions()

    def read_subscriptions(self) -> None:
        """Read the topics that the members subscribe to, if their protocol can be read."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_topics(member.metadata(self.protocol_name or "")))
        except ProtocolError:
            return
        self.subscribed_topics = frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; if the subscriptions of a consumer group
        cannot be read, true."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def listing(self) -> list[JoinGroupResponseMember]:
        """Return the members for the leader's JoinGroup response."""
        protocol = self.protocol_name or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]


def _names(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}


def _topics(subscription: bytes) -> Iterator[str]:
    """Yield the topics of a consumer's subscription; they follow the version in every version."""
    try:
        version, count = _SUBSCRIPTION.unpack_from(subscription)
        if version < 0 or count < 0:
            raise ProtocolError(f"a subscription of version {version} to {count} topics")
        at = _SUBSCRIPTION.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, at)
            at += _LENGTH.size
            if not 0 <= length <= len(subscription) - at:
                raise ProtocolError(f"a topic of {length} bytes in a subscription")
            yield subscription[at : at + length].decode()
            at += length
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a subscription that cannot be read: {error}") from error
