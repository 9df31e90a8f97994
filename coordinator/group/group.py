"""One classic group: its members, its generation and what they agree on. Pure; decides nothing."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final

from barnabas.coordinator.decision import Ticket
from barnabas.coordinator.group.states import GroupState, check_transition
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages.join_group import JoinGroupResponseMember

CONSUMER = "consumer"
"""The protocol type whose subscriptions a coordinator can read."""

_SUBSCRIPTION: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")

Protocols = tuple[tuple[str, bytes], ...]
"""Names a member supports, the one it likes best first, each with the member's metadata."""


@dataclass(slots=True)
class Member:
    """A member. Timeouts in ms; `assignment` is what the leader gave it in the last generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Ticket | None = None
    """Its JoinGroup is parked."""
    syncing: Ticket | None = None
    """Its SyncGroup is parked."""
    is_new: bool = False
    """Not in any generation yet."""
    deadline_ms: int = 0
    """When its session ends, in monotonic time."""
    timer_ms: int | None = None
    """When its session's timer fires, in monotonic time; None where none runs."""

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol; empty where it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The protocol it likes best of those that everybody supports."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class Group:
    """A group in memory. What of it is logged stands in `records.py`."""

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
    pending_joins: set[str] = field(default_factory=set)
    """Member ids given out that have not joined yet (KIP-394)."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members of this generation that have not sent SyncGroup yet."""
    newcomers: bool = False
    """Somebody joined during the initial delay, which may then be extended (KIP-134)."""
    subscribed_topics: frozenset[str] | None = frozenset()
    """None where the subscriptions cannot be read."""
    takeover: tuple[str, Member] | None = None
    """A static member on its way: the id it replaces, and itself, until that is committed."""

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
        """The time that the slowest member asked for."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> int:
        """Members whose JoinGroup is parked."""
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
        """The member; raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where it was replaced."""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a new member; the first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Let a member go, pending ones too; the next one in line leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def replace(self, old_id: str, member: Member) -> None:
        """Let a static member go on under a new id, in its old place (KIP-345)."""
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
        """Whether there is room, in group.max.size members, for one who wants to join."""
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # Counted by who has come already: the slowest of too many are left outside.
            known = member is not None and member.joining is not None
            return known or self.awaiting_join < max_size
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(self.members) < max_size
        return True

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who has rejoined; False where nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((each for each in self.members.values() if each.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def adopt(self, generation: int, assignments: dict[str, bytes], timestamp_ms: int) -> None:
        """What was logged is committed: a static member's new id, the leader's assignments."""
        assert generation == self.generation, "a group moved on while its record was under way"
        if self.takeover is not None:
            self.replace(*self.takeover)
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.transition(GroupState.STABLE, timestamp_ms)

    # -- protocols -------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols would have one in common with all others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and not self._candidates().isdisjoint(
            name for name, _ in protocols
        )

    def _candidates(self, replacing: str = "", instead: Member | None = None) -> set[str]:
        members = [each for key, each in self.members.items() if key != replacing]
        if instead is not None:
            members.append(instead)
        counted = Counter(name for each in members for name in {name for name, _ in each.protocols})
        return {name for name, count in counted.items() if count == len(members)}

    def select_protocol(self, replacing: str = "", instead: Member | None = None) -> str | None:
        """The protocol with the most votes, of those that every member supports.

        With `replacing`, as it would be if that member were another; None where that leaves none.
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
        """The next generation, of those who are in; an empty one where nobody is."""
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
        """Learn the topics that the members subscribe to, where their protocol can be read."""
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
        """Whether a member reads the topic; in doubt, a consumer group reads every topic."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def listing(self) -> list[JoinGroupResponseMember]:
        """The members as the leader is told of them."""
        protocol = self.protocol_name or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]


def _topics(subscription: bytes) -> Iterator[str]:
    """Topics of a consumer's subscription: they follow its version, in every version of it."""
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
