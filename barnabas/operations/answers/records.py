"""The answers of `barnabas consume` and `barnabas produce`.

`consume` prints so many lines that faster code writes those of records; a test compares that code
with `Record`.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from barnabas.operations.answers.model import Answer, OneOf


@dataclass(frozen=True, slots=True)
class Encoded(Answer):
    """Bytes that are not UTF-8."""

    base64: str


@dataclass(frozen=True, slots=True)
class Place(Answer):
    """The place of a record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 without a timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Answer):
    """A record that `consume` prints."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[tuple[str, str | Encoded | None]] = field(default_factory=list)
    """Name and value of each."""
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 without a timestamp."""
    topic_partitions: int | None = None
    """The number of partitions of its topic; left out if the topic has just been deleted."""


@dataclass(frozen=True, slots=True)
class OffsetKey(Answer):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset(Answer):
    """A committed offset."""

    offset: int
    leader_epoch: int
    """The epoch of the record before the offset; -1 is unknown."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1: the offset expires by offsets.retention.minutes."""
    topic_id: str
    """The topic id (KIP-516), in URL-safe base64; zeros are unknown."""


@dataclass(frozen=True, slots=True)
class OffsetRecord(Place):
    """A record of __consumer_offsets about a committed offset; null is a deleted one."""

    kind: Literal["offset"]
    key: OffsetKey
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class StoredMember(Answer):
    """A member of a stored group.

    `topics` and `assigned` are null if the protocol type is no consumer's, or if a field cannot be
    read.
    """

    member: str
    """The member id."""
    instance: str | None
    """The group.instance.id."""
    client_id: str
    host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    topics: list[str] | None
    """The topics that it subscribes to."""
    assigned: list[str] | None
    """TOPIC:PARTITION of each partition that it reads."""
    error: str | None
    """The reason why a field cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredGroup(Answer):
    """A generation of a group."""

    protocol_type: str
    generation: int
    assignor: str | None
    leader: str | None
    """The member id of the leader."""
    timestamp_ms: int
    """The time of the change to this state, in ms since 1970; -1 is unknown."""
    members: list[StoredMember]


@dataclass(frozen=True, slots=True)
class GroupKey(Answer):
    """The key of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupRecord(Place):
    """A record of __consumer_offsets about a group; null is a deleted one."""

    kind: Literal["group"]
    key: GroupKey
    value: StoredGroup | None


CONSUMER_GROUP_KINDS: Final = {
    3: "consumer group",
    4: "consumer group topics",
    5: "consumer group member",
    6: "consumer group target epoch",
    7: "consumer group target",
    8: "consumer group assignment",
    16: "consumer group expression",
}
"""The kinds of records of groups in the consumer protocol (KIP-848), by their numbers."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupKey(Answer):
    """The key of a group in the consumer protocol, or of a part of it."""

    group: str
    member: str | None
    """The member id."""
    expression: str | None
    """The RE2 expression by which members subscribe."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord(Place):
    """A record of __consumer_offsets about a group in the consumer protocol (KIP-848)."""

    kind: Annotated[str, OneOf(CONSUMER_GROUP_KINDS.values())]
    key: ConsumerGroupKey
    value: dict[str, Any] | None
    """The fields by Kafka's names; null is a deleted record."""


_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


@dataclass(frozen=True, slots=True)
class StoredTransaction(Answer):
    """The latest transaction of a transactional id; ids and epochs of -1 stand for none."""

    producer_id: int
    epoch: int
    last_epoch: int
    state: Annotated[str, OneOf(_STATES)]
    timeout_ms: int
    start_ms: int
    """The start of the transaction, in ms since 1970; -1 without one."""
    updated_ms: int
    """The time of the last change, in ms since 1970."""
    partitions: list[str]
    """TOPIC:PARTITION of each; once it is decided, of those that wait for a marker."""
    client_transaction_version: int
    """The transaction.version that the client speaks."""
    previous_producer_id: int
    next_producer_id: int
    next_epoch: int
    owner: str | None
    """The principal to which the producer id was given, if the cluster has an authorizer."""


@dataclass(frozen=True, slots=True)
class TransactionKey(Answer):
    """The key of a transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionRecord(Place):
    """A record of __transaction_state; null is a deleted transactional id."""

    kind: Literal["transaction"]
    key: TransactionKey
    value: StoredTransaction | None


@dataclass(frozen=True, slots=True)
class UnknownRecord(Place):
    """A record of an internal topic whose kind is not known here."""

    kind: Literal["unknown"]


@dataclass(frozen=True, slots=True)
class DamagedRecord(Place):
    """A record of an internal topic that cannot be decoded."""

    error: str


@dataclass(frozen=True, slots=True)
class Produced(Answer):
    """The records that were produced."""

    topic: str
    records: int


ANSWERS: Final[dict[str, Any]] = {
    "consume": OffsetRecord
    | GroupRecord
    | ConsumerGroupRecord
    | TransactionRecord
    | Record
    | UnknownRecord
    | DamagedRecord,
    "produce": Produced,
}
