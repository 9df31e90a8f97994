"""The answers of `barnabas groups`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from barnabas.operations.answers.model import Answer, OneOf
from barnabas.protocol.records.group_lag import OutOfRange

if TYPE_CHECKING:
    from barnabas.protocol.messages.list_groups import ListedGroup


@dataclass(frozen=True, slots=True)
class Group(Answer):
    """A group of the cluster."""

    group: str
    state: str
    """Kafka's name of the state, such as Stable."""
    type: str
    """Kafka's name of the protocol of groups, such as classic; empty if the broker is too old."""
    protocol: str
    """The protocol type, such as consumer; empty for offsets without members."""

    @classmethod
    def of(cls, row: "ListedGroup") -> Self:
        """Return the answer for a row of ListGroups."""
        return cls(row.group_id, row.group_state, row.group_type, row.protocol_type)


@dataclass(frozen=True, slots=True)
class Coordinator(Answer):
    """The broker that coordinates a group."""

    broker: int
    address: str
    """HOST:PORT."""


@dataclass(frozen=True, slots=True)
class Member(Answer):
    """A member of a group."""

    member: str
    """Its group.instance.id, or its member id."""
    client_id: str
    host: str
    assigned: list[str] | None
    """TOPIC:PARTITION of each partition that it reads; null if its assignment cannot be read."""
    error: str | None
    """The reason why it cannot be read."""
    protocol: str | None
    """The protocol of a member of a consumer group: consumer, or classic; null if unknown."""
    epoch: int | None
    """Its epoch; this and what follows is null in classic groups."""
    target: list[str] | None
    """TOPIC:PARTITION of each partition that it will read."""
    subscribed: list[str] | None
    """The topics that it has named."""
    expression: str | None
    """The RE2 expression by which it subscribes to topics too."""
    rack: str | None


@dataclass(frozen=True, slots=True)
class GroupPartition(Answer):
    """A partition that has a committed offset or a reader; what is null is unknown."""

    topic: str
    partition: int
    offset: int | None
    """The committed offset."""
    end: int | None
    """The offset of the next record."""
    lag: int | None
    """The difference of `end` and `offset`, as Kafka's tools show it; 0 behind the end."""
    to_read: int | None
    """Records that a read_committed consumer of the group will still be given."""
    held_back: int | None
    """Records behind the last stable offset."""
    exact: bool | None
    """Whether `to_read` and `held_back` are exact, and no lower bounds."""
    held_back_by: str | None
    """The transactional id of the oldest transaction that holds records back."""
    producer_id: int | None
    """The producer id of that transaction."""
    out_of_range: Annotated[str, OneOf(OutOfRange)] | None
    """The place of a committed offset that is not in the log: below its start, behind its end, or
    in a partition that is gone."""
    member: str | None
    """The member that reads the partition."""
    host: str | None


@dataclass(frozen=True, slots=True)
class DescribedGroup(Answer):
    """A group with its members and its partitions; the counts are sums over the partitions."""

    group: str
    state: str
    """Kafka's name of the state, such as Stable."""
    type: str
    """The protocol: classic or consumer."""
    coordinator: Coordinator
    assignor: str | None
    epoch: int | None
    """The epoch to which the members of a consumer group are moving; null in classic groups."""
    assignment_epoch: int | None
    """The epoch of its target assignment."""
    lag: int
    """The sum of the differences of offsets, as Kafka's tools show it."""
    to_read: int | None
    """Records that read_committed consumers of the group will still be given."""
    held_back: int | None
    """Records behind last stable offsets."""
    exact: bool
    """Whether `to_read` and `held_back` are exact, and no lower bounds."""
    members: list[Member]
    partitions: list[GroupPartition]


@dataclass(frozen=True, slots=True)
class ResetOffset(Answer):
    """A committed offset that was reset, or would be without --dry-run."""

    topic: str
    partition: int
    was: int | None
    """The offset before; null if there was none."""
    offset: int


@dataclass(frozen=True, slots=True)
class DeletedGroup(Answer):
    """A group that was deleted."""

    group: str
    deleted: Literal[True]


@dataclass(frozen=True, slots=True)
class DeletedOffsets(Answer):
    """A group whose committed offsets for a topic were deleted."""

    group: str
    deleted: int
    """The number of offsets."""


ANSWERS: Final[dict[str, Any]] = {
    "groups list": list[Group],
    "groups describe": DescribedGroup | list[DescribedGroup],
    "groups reset-offsets": list[ResetOffset],
    "groups delete": DeletedGroup,
    "groups delete-offsets": DeletedOffsets,
}
