"""The JSON answers of `barnabas consume` and `barnabas produce`.

`consume` prints so many lines that faster code writes them; a test holds it against these models.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from barnabas.cli.answers.model import Answer


class Encoded(Answer):
    """Bytes that are not UTF-8."""

    base64: str


class Content(Answer):
    """The content of a record; what is left out is null, or an empty list of headers.

    Bytes that are not UTF-8 are in `key_base64` and `value_base64`, in place of `key` and `value`.
    """

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[tuple[str, str | Encoded | None]] = []
    """Name and value of each."""


class Place(Answer):
    """The place of a record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 without a timestamp."""


class Record(Place, Content):
    """A record that `consume` prints."""

    topic_partitions: int | None = None
    """The number of partitions of its topic; left out if the topic has just been deleted."""


class GivenRecord(Content):
    """A record that `produce --format json` reads: one of `consume`, or parts of it."""

    model_config = ConfigDict(strict=True)

    topic: str | None = None
    """Without effect, as `offset`."""
    partition: int | None = None
    """The partition, with --same-partitions."""
    topic_partitions: int | None = None
    """With --same-partitions, the number of partitions that the topic must have."""
    offset: int | None = None
    timestamp_ms: int | None = None


class OffsetKey(Answer):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


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


class OffsetRecord(Place):
    """A record of __consumer_offsets about a committed offset; null is a deleted one."""

    kind: Literal["offset"]
    key: OffsetKey
    value: CommittedOffset | None


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


class GroupKey(Answer):
    """The key of a group."""

    group: str


class GroupRecord(Place):
    """A record of __consumer_offsets about a group; null is a deleted one."""

    kind: Literal["group"]
    key: GroupKey
    value: StoredGroup | None


class StoredTransaction(Answer):
    """The latest transaction of a transactional id; ids and epochs of -1 stand for none."""

    producer_id: int
    epoch: int
    last_epoch: int
    state: Literal[
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
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


class TransactionKey(Answer):
    """The key of a transactional id."""

    transactional_id: str


class TransactionRecord(Place):
    """A record of __transaction_state; null is a deleted transactional id."""

    kind: Literal["transaction"]
    key: TransactionKey
    value: StoredTransaction | None


class UnknownRecord(Place):
    """A record of an internal topic whose kind is not known here."""

    kind: Literal["unknown"]


class DamagedRecord(Place):
    """A record of an internal topic that cannot be decoded."""

    error: str


class Produced(Answer):
    """The records that were produced."""

    topic: str
    records: int


ANSWERS: Final[dict[str, Any]] = {
    # Quicker than the other mode, which tries all models for each line.
    "consume": Annotated[
        OffsetRecord | GroupRecord | TransactionRecord | Record | UnknownRecord | DamagedRecord,
        Field(union_mode="left_to_right"),
    ],
    "produce": Produced,
}
