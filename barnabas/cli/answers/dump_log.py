"""The JSON answers of `barnabas dump-log`: the objects of which it prints one a line."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from barnabas.cli.answers.model import Answer


class _Line(Answer):
    file: str
    """The name of the file."""


class Batch(_Line):
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
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
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


class Marker(_Line):
    """The end of a transaction in a log."""

    offset: int
    marker: Literal["commit", "abort"]
    coordinator_epoch: int


class LoggedRecord(_Line):
    """A record in a log; bytes that are not UTF-8 are escaped."""

    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 without a timestamp."""
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]


class OffsetEntry(_Line):
    """An entry of an offset index."""

    offset: int
    position: int
    """The start of the batch with the offset in the log, in bytes."""


class TimeEntry(_Line):
    """An entry of a time index."""

    timestamp_ms: int
    """The largest timestamp so far, in ms since 1970."""
    offset: int


class AbortedTransaction(_Line):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker was written."""


class ProducerState(_Line):
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
    # Quicker than the other mode, which tries all models for each line.
    "dump-log": Annotated[
        LoggedRecord
        | Batch
        | Marker
        | OffsetEntry
        | TimeEntry
        | AbortedTransaction
        | ProducerState,
        Field(union_mode="left_to_right"),
    ]
}
