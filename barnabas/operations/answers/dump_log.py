"""The answers of `barnabas dump-log`: the objects of which it prints one a line."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from barnabas.operations.answers.model import Answer, OneOf
from barnabas.protocol.records.compression import Compression


@dataclass(frozen=True, slots=True)
class Line(Answer):
    """The contents of a part of a file."""

    file: str
    """The name of the file."""


@dataclass(frozen=True, slots=True)
class Batch(Line):
    """A batch of records in a log."""

    offset: int
    """The base offset."""
    last_offset: int
    count: int
    """The number of records."""
    position: int
    """The start of the batch in the file, in bytes."""
    size_bytes: int
    leader_epoch: int
    timestamp_ms: int
    """The largest timestamp, in ms since 1970; -1 without one."""
    timestamp_type: Literal["create", "append"]
    compression: Annotated[str, OneOf(each.name.lower() for each in Compression)]
    producer_id: int
    """-1 without a producer id."""
    producer_epoch: int
    sequence: int
    """The sequence number of the first record."""
    transactional: bool
    control: bool
    crc: int
    """The CRC-32C that the batch has."""
    valid: bool
    """Whether the batch matches its CRC."""


@dataclass(frozen=True, slots=True)
class Marker(Line):
    """The end of a transaction in a log."""

    offset: int
    marker: Literal["commit", "abort"]
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class LoggedRecord(Line):
    """A record in a log; bytes that are not UTF-8 are escaped."""

    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 without a timestamp."""
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class OffsetEntry(Line):
    """An entry of an offset index."""

    offset: int
    position: int
    """The start of the batch with the offset in the log, in bytes."""


@dataclass(frozen=True, slots=True)
class TimeEntry(Line):
    """An entry of a time index."""

    timestamp_ms: int
    """The largest timestamp so far, in ms since 1970."""
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction(Line):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker was written."""


@dataclass(frozen=True, slots=True)
class ProducerState(Line):
    """A producer of a snapshot."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    coordinator_epoch: int
    last_timestamp_ms: int
    """The timestamp of its last batch, in ms since 1970."""
    current_txn_first_offset: int | None
    """The first offset of its open transaction."""


ANSWERS: Final[dict[str, Any]] = {
    "dump-log": LoggedRecord
    | Batch
    | Marker
    | OffsetEntry
    | TimeEntry
    | AbortedTransaction
    | ProducerState,
}
