"""Whether bytes may become part of a log: batch headers judged before an offset is assigned.

Batches stay *deflated*: their CRC, sizes, counts, flags, timestamps and producer fields are judged
by the header alone. Records are *inflated* only where the topic asks for it: keys on a compacted
topic, and a `compression.type` other than the producer's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    crc_matches,
    iter_headers,
    read_header,
    read_prefix,
    set_append_time,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.records.varint import Buffer

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_INFLATION_FACTOR = 32
_MIN_INFLATION = 32 * 1024 * 1024
_MAX_ERRORS = 1000
_SHOWN_ERRORS = 3
ZSTD_SINCE = 7
"""The first Produce version that knows zstd (KIP-110)."""
_LAST_CODEC = max(Compression).value


class Origin(Enum):
    """Who appends. Clients may not write control batches, and their sequences are checked;
    what a leader has accepted once is not judged again by a follower."""

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()


_CLIENT = Origin.CLIENT


class RecordError(NamedTuple):
    """One refused record, by its index in the batch."""

    batch_index: int
    message: str


class RecordsRefused(KafkaError):
    """Records of a valid batch that the topic's rules refuse, each with its reason (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = errors


@dataclass(frozen=True, slots=True)
class Rules:
    """What a topic's configuration demands of its batches. Sizes in bytes, times in ms."""

    max_message_bytes: int
    segment_bytes: int
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 3_600_000
    log_append_time: bool = False
    keys_required: bool = False
    compression: Compression | None = None
    """The codec of `compression.type`; None keeps the producer's."""
    compression_level: int | None = None

    @classmethod
    def of(cls, config: "TopicConfig") -> "Rules":
        codec = _target_codec(config.compression_type)
        levels = {
            Compression.GZIP: config.compression_gzip_level,
            Compression.LZ4: config.compression_lz4_level,
            Compression.ZSTD: config.compression_zstd_level,
        }
        return cls(
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            keys_required="compact" in config.cleanup_policy,
            compression=codec,
            compression_level=None if codec is None else levels.get(codec),
        )


Validated = tuple[Buffer, list[tuple[int, BatchHeader]]]
"""Bytes that may be appended, and position and header of each batch in them. The bytes are the
caller's buffer, stamped in place for LogAppendTime, unless they had to be copied."""


def validate(data: Buffer, rules: Rules, *, origin: Origin, now_ms: int) -> Validated:
    """Judges what a leader is asked to append; `now_ms` since the epoch.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE, and RecordsRefused where single records
    are at fault.
    """
    from_client = origin is _CLIENT
    batches = _one_batch(data) if from_client else _all_batches(data)
    for pos, header in batches:
        _check_batch(data, pos, header, rules, from_client, now_ms)
    # What the broker writes itself to a compacted topic has keys.
    needs_keys = from_client and rules.keys_required
    if needs_keys or rules.compression is not None:
        data, batches = _inflate_where_needed(data, batches, rules, needs_keys)
    if len(data) > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(data)} bytes exceed the segment size of {rules.segment_bytes} bytes",
        )
    if rules.log_append_time:
        data = _writable(data)
        for pos, _ in batches:
            set_append_time(data, pos, now_ms)
        batches = list(iter_headers(data))
    return data, batches


def check_codec_of_version(data: Buffer, produce_version: int) -> None:
    """Refuses zstd from clients whose Produce version is older than the codec (KIP-110)."""
    if produce_version < ZSTD_SINCE and _one_batch(data)[0][1].compression == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {produce_version} does not know zstd",
        )


def _target_codec(compression_type: str) -> Compression | None:
    if compression_type == "producer":
        return None
    if compression_type == "uncompressed":
        return Compression.NONE
    return Compression[compression_type.upper()]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _one_batch(data: Buffer) -> list[tuple[int, BatchHeader]]:
    # KIP-98: from Produce v3 on a partition's records are exactly one batch.
    try:
        header = read_header(data)
    except UnsupportedMagicError as error:
        raise _invalid(str(error)) from None
    except CorruptRecordError as error:
        if len(data) < LOG_OVERHEAD or read_prefix(data)[1] > len(data):
            raise _invalid("a partition of a Produce request needs one record batch") from None
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if LOG_OVERHEAD + header.batch_length != len(data):
        raise _invalid("a partition of a Produce request must have only one record batch")
    return [(0, header)]


def _all_batches(data: Buffer) -> list[tuple[int, BatchHeader]]:
    try:
        return list(iter_headers(data))
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_batch(
    data: Buffer, pos: int, header: BatchHeader, rules: Rules, from_client: bool, now_ms: int
) -> None:
    # Unpacked at once: to fetch a field from a named tuple costs as much as to unpack six.
    _, length, _, _, _, attributes, last_delta, base_ms, max_ms, _, _, _, count = header
    if LOG_OVERHEAD + length > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes exceeds max.message.bytes, {rules.max_message_bytes}",
        )
    if not crc_matches(data, pos, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if count <= 0 or count != last_delta + 1:
        raise _invalid(
            f"a batch that counts {count} records cannot have {last_delta} as its last offset delta"
        )
    if attributes & COMPRESSION_MASK > _LAST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.compression}"
        )
    if from_client:
        _check_client_fields(header)
    if not rules.log_append_time:
        # Judged by the first and the greatest timestamp of the header: walking the records would
        # cost more than the rest of the append.
        earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
        if not (earliest <= base_ms <= latest and earliest <= max_ms <= latest):
            _check_timestamps(header, earliest, latest)


def _check_client_fields(header: BatchHeader) -> None:
    attributes, producer_id = header.attributes, header.producer_id
    if header.base_offset != 0:
        raise _invalid(f"the base offset of an appended batch is 0, not {header.base_offset}")
    if attributes & CONTROL:
        raise _invalid("clients may not write control batches")
    if attributes & LOG_APPEND_TIME:
        text = "producers may not set the timestamp type LogAppendTime"
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, text, (RecordError(0, text),))
    if producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {producer_id} sent sequence {header.base_sequence} "
                f"and epoch {header.producer_epoch}"
            )
    elif attributes & TRANSACTIONAL:
        raise _invalid("a transactional batch needs a producer id")


def _check_timestamps(header: BatchHeader, earliest: int, latest: int) -> None:
    for stamp in (header.base_timestamp, header.max_timestamp):
        if not earliest <= stamp <= latest and stamp != NO_TIMESTAMP:
            text = f"timestamp {stamp} is out of range [{earliest}, {latest}]"
            index = 0 if stamp == header.base_timestamp else header.last_offset_delta
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP,
                "One or more records have been rejected due to invalid timestamp",
                (RecordError(index, text),),
            )


def _writable(data: Buffer) -> bytearray | memoryview:
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data


def _inflate_where_needed(
    data: Buffer, batches: list[tuple[int, BatchHeader]], rules: Rules, needs_keys: bool
) -> tuple[Buffer, list[tuple[int, BatchHeader]]]:
    parts: list[Buffer] = []
    rewritten = False
    for pos, header in batches:
        batch: Buffer = memoryview(data)[pos : pos + header.size]
        other_codec = rules.compression not in (None, header.compression)
        if needs_keys:
            _check_keys(_inflate(batch, header, rules))
        if other_codec and not header.is_control:
            batch = _recompress(list(_inflate(batch, header, rules)), header, rules)
            rewritten = True
        parts.append(batch)
    if not rewritten:
        return data, batches
    data = bytearray().join(parts)
    batches = list(iter_headers(data))
    for _, header in batches:
        if header.size > rules.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {header.size} bytes in the topic's codec; max.message.bytes is "
                f"{rules.max_message_bytes}",
            )
    return data, batches


def _inflate(batch: Buffer, header: BatchHeader, rules: Rules) -> Iterator[Record]:
    bound = max(_INFLATION_FACTOR * rules.max_message_bytes, _MIN_INFLATION)
    offset = header.base_offset
    try:
        for record in iter_records(batch, 0, header, max_bytes=bound):
            if record.offset != offset:
                raise _invalid("the offsets of a batch's records are not consecutive")
            if not NO_TIMESTAMP <= record.timestamp <= header.max_timestamp:
                raise _invalid(
                    f"a batch up to {header.max_timestamp} has a record at {record.timestamp}"
                )
            yield record
            offset += 1
    except ProtocolError as error:
        raise _invalid(str(error)) from None


def _check_keys(records: Iterator[Record]) -> None:
    missing = (index for index, record in enumerate(records) if record.key is None)
    errors = tuple(
        RecordError(index, "Compacted topic cannot accept message without key")
        for index in islice(missing, _MAX_ERRORS)
    )
    if errors:
        shown = "; ".join(f"{e.batch_index}: {e.message}" for e in errors[:_SHOWN_ERRORS])
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors in "
            f"total, and only showing the first three errors at most: {shown}",
            errors,
        )


def _recompress(records: list[Record], header: BatchHeader, rules: Rules) -> bytes:
    return build_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        compression=rules.compression or Compression.NONE,
        level=rules.compression_level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
