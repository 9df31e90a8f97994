"""Whether bytes may become part of a log: batch headers judged before an offset is assigned.

Batches stay *deflated*: their CRC, sizes, counts, flags, timestamps and producer fields are judged
by the header alone. Records are *inflated* only where the topic asks for it: keys on a compacted
topic, and a `compression.type` other than the producer's. Then a batch of many records takes long:
`validation` does it in steps, between which the event loop is for others.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    crc_matches,
    iter_headers,
    pack_batch,
    peek_header,
    read_header,
    read_prefix,
    set_append_time,
)
from barnabas.protocol.records.compression import Compression, compress
from barnabas.protocol.records.record import inflate, iter_inflated
from barnabas.protocol.records.varint import Buffer

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_INFLATION_FACTOR = 32
_MIN_INFLATION = 32 * 1024 * 1024
_MAX_ERRORS = 1000
_SHOWN_ERRORS = 3
RECORDS_PER_STEP = 256
"""About a millisecond."""
BYTES_PER_STEP = 64 * 1024
"""Of a batch whose records are looked into: more takes the codecs a millisecond and longer."""
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


# No named tuple: each batch is asked about most of it, and slots are read in a fifth of the time.
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
    looks_inside: bool = field(init=False)
    """Whether records are looked at, not only the headers of their batches."""

    def __post_init__(self) -> None:
        looks_inside = self.keys_required or self.compression is not None
        object.__setattr__(self, "looks_inside", looks_inside)

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


T = TypeVar("T")
Steps = Generator[Callable[[], Any] | None, Any, T]
"""Work in steps: None yielded for one that is done, or something to call and send the result of."""

Validated = tuple[Buffer, list[tuple[int, BatchHeader]]]
"""Bytes that may be appended, and position and header of each batch in them. The bytes are the
caller's buffer, stamped in place for LogAppendTime, unless they had to be copied."""


def validate(data: Buffer, rules: Rules, *, origin: Origin, now_ms: int) -> Validated:
    """Judges what a leader is asked to append; `now_ms` since the epoch.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE, and RecordsRefused where single records
    are at fault.
    """
    batches = _check_headers(data, rules, origin, now_ms)
    if rules.looks_inside:
        data, batches = _at_once(_look_inside(data, batches, rules, origin))
    if rules.log_append_time or len(data) > rules.segment_bytes:
        return _finished(data, batches, rules, now_ms)
    return data, batches


def validation(data: Buffer, rules: Rules, *, origin: Origin, now_ms: int) -> Steps[Validated]:
    """`validate` in steps of at most RECORDS_PER_STEP; raises as it does.

    Where a step yields work it wants to be sent its result, or thrown its error: bulk work of a
    codec, which may be done in a thread. `data` is not to change until the end.
    """
    batches = _check_headers(data, rules, origin, now_ms)
    if rules.looks_inside:
        data, batches = yield from _look_inside(data, batches, rules, origin)
    return _finished(data, batches, rules, now_ms)


def takes_steps(data: Buffer) -> bool:
    """Whether `validate` would take long, where rules make it look inside."""
    if len(data) < HEADER_SIZE:
        return False
    try:
        return len(data) > BYTES_PER_STEP or peek_header(data).record_count > RECORDS_PER_STEP
    except CorruptRecordError:
        return False


def _check_headers(
    data: Buffer, rules: Rules, origin: Origin, now_ms: int
) -> list[tuple[int, BatchHeader]]:
    from_client = origin is _CLIENT
    batches = _one_batch(data) if from_client else _all_batches(data)
    for pos, header in batches:
        _check_batch(data, pos, header, rules, from_client, now_ms)
    return batches


def _finished(
    data: Buffer, batches: list[tuple[int, BatchHeader]], rules: Rules, now_ms: int
) -> Validated:
    if len(data) > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(data)} bytes exceed the segment size of {rules.segment_bytes} bytes",
        )
    if rules.log_append_time:
        data = writable(data)
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
    base, length, _, _, _, attributes, last_delta, base_ms, max_ms, producer, _, _, count = header
    if LOG_OVERHEAD + length > rules.max_message_bytes and (
        # A marker has to fit everywhere: without it a transaction would never end.
        from_client or not attributes & CONTROL
    ):
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
    if from_client and (base or attributes & ~COMPRESSION_MASK or producer >= 0):
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


def writable(data: Buffer) -> bytearray | memoryview:
    """`data` itself where it can be changed, a copy where not."""
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data


def _at_once(steps: Steps[T]) -> T:
    result: Any = None
    try:
        while True:
            work = steps.send(result)
            result = work() if work else None
    except StopIteration as end:
        validated: T = end.value
        return validated


def _look_inside(
    data: Buffer, batches: list[tuple[int, BatchHeader]], rules: Rules, origin: Origin
) -> Steps[Validated]:
    # What the broker writes itself to a compacted topic has keys.
    needs_keys = rules.keys_required and origin is _CLIENT
    parts: list[Buffer] = []
    rewritten = False
    for pos, header in batches:
        batch: Buffer = memoryview(data)[pos : pos + header.size]
        other_codec = rules.compression not in (None, header.compression) and not header.is_control
        if needs_keys or other_codec:
            body = yield partial(_inflate, batch, header, rules)
            newest = yield from _check_records(body, header, needs_keys)
            if other_codec:
                header = header._replace(max_timestamp=newest)
                batch = yield partial(_recompress, body, header, rules)
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


def _inflate(batch: Buffer, header: BatchHeader, rules: Rules) -> bytes:
    bound = max(_INFLATION_FACTOR * rules.max_message_bytes, _MIN_INFLATION)
    try:
        return inflate(batch, 0, header, max_bytes=bound)
    except ProtocolError as error:
        raise _invalid(str(error)) from None


def _check_records(body: bytes, header: BatchHeader, needs_keys: bool) -> Steps[int]:
    """Judges every record; the greatest timestamp."""
    newest = NO_TIMESTAMP
    errors: list[RecordError] = []
    try:
        for number, record in enumerate(iter_inflated(body, header)):
            if record.offset != header.base_offset + number:
                raise _invalid("the offsets of a batch's records are not consecutive")
            if not NO_TIMESTAMP <= record.timestamp <= header.max_timestamp:
                raise _invalid(
                    f"a batch up to {header.max_timestamp} has a record at {record.timestamp}"
                )
            newest = max(newest, record.timestamp)
            if needs_keys and record.key is None:
                text = "Compacted topic cannot accept message without key"
                errors.append(RecordError(number, text))
                if len(errors) == _MAX_ERRORS:
                    break
            if number % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
                yield None
    except ProtocolError as error:
        raise _invalid(str(error)) from None
    if errors:
        shown = "; ".join(f"{e.batch_index}: {e.message}" for e in errors[:_SHOWN_ERRORS])
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors in "
            f"total, and only showing the first three errors at most: {shown}",
            tuple(errors),
        )
    return newest


def _recompress(body: bytes, header: BatchHeader, rules: Rules) -> bytes:
    codec = rules.compression or Compression.NONE
    header = header._replace(attributes=header.attributes & ~COMPRESSION_MASK | codec)
    return pack_batch(header, compress(codec, body, rules.compression_level))
