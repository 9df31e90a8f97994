"""The validation of a batch before it gets its offsets in a log.

Batches stay compressed: CRC, sizes, counts, flags, timestamps and producer fields are checked in
the header alone. Records are decompressed only if the topic requires it: keys on a compacted topic,
a `compression.type` other than the producer's, `message.records.validation.enable`, and a limit in
`max.decompressed.message.bytes`, which is for the records of compressed batches. A batch of many
records then takes long: `validation` works in steps, between which the event loop serves others.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.key import ARRAY_MAX
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    HeaderFields,
    UnsupportedMagicError,
    crc_matches,
    pack_batch,
    read_header,
    read_prefix,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import (
    FIRST_BYTES,
    MAX_RATIO,
    Compression,
    compressor,
    inflation_bound,
    unreadable,
)
from barnabas.protocol.records.record import MIN_RECORD, Record, RecordTooLargeError
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log.record_steps import (
    BYTES_PER_STEP,
    RECORDS_PER_STEP,
    RecordSteps,
    TakesLong,
    at_once,
    briefly,
    each_record,
)
from barnabas.storage.origin import Origin

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

_MAX_ERRORS = 1000
_SHOWN_ERRORS = 3
_RECORDS_AT = HEADER_SIZE - LOG_OVERHEAD
"""Bytes of a header that `batch_length` counts."""
ZSTD_SINCE = 7
"""The first Produce version that allows zstd (KIP-110)."""
LAST_CODEC: Final = max(Compression).value
COORDINATOR_BYTES = (1 << 20) + LOG_OVERHEAD
"""The default of `max.message.bytes`: a coordinator may write as much where the limit is lower."""


_CLIENT = Origin.CLIENT
_OF_CLIENT: Final = COMPRESSION_MASK | TRANSACTIONAL
"""The attributes that a client may set."""


class RecordError(NamedTuple):
    """One refused record, by its index in the batch."""

    batch_index: int
    message: str


class RecordsRefused(KafkaError):
    """Records of a valid batch that the topic's rules refuse, each with its reason (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = errors


# Not a named tuple: most fields are read for each batch, and slots are read in a fifth of the time.
@dataclass(frozen=True, slots=True)
class Rules:
    """The requirements of a topic's configuration on its batches. Sizes in bytes, times in ms."""

    max_message_bytes: int
    segment_bytes: int
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 3_600_000
    log_append_time: bool = False
    keys_required: bool = False
    validates_records: bool = False
    """Whether every record of a client is read before it is appended."""
    compression: Compression | None = None
    """The codec of `compression.type`; None keeps the producer's."""
    compression_level: int | None = None
    max_record_bytes: int = ARRAY_MAX
    """The bytes of a record in a compressed batch."""
    max_batch_bytes: int = field(init=False)
    """The bytes of the largest batch that fits both limits."""
    looks_inside: bool = field(init=False)
    """Whether records are checked, not only the headers of their batches."""

    def __post_init__(self) -> None:
        checks = self.keys_required or self.validates_records
        looks_inside = checks or self.compression is not None or self.bounds_records
        object.__setattr__(self, "looks_inside", looks_inside)
        max_batch_bytes = min(self.max_message_bytes, self.segment_bytes)
        object.__setattr__(self, "max_batch_bytes", max_batch_bytes)

    @property
    def bounds_records(self) -> bool:
        """Whether a record of a compressed batch may be too large."""
        return self.max_record_bytes < ARRAY_MAX

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
            validates_records=config.message_records_validation_enable,
            compression=codec,
            compression_level=None if codec is None else levels.get(codec),
            max_record_bytes=config.max_decompressed_message_bytes,
        )


Validated = tuple[Buffer, BatchHeader]
"""The bytes of a batch that may be appended, and its header.

The bytes are the caller's buffer, unless they had to be copied. With LogAppendTime the header has
the time that the log will set in them.
"""


def is_sound(data: Buffer, header: HeaderFields, rules: Rules, origin: Origin, now_ms: int) -> bool:
    """Return whether one batch certainly may be appended, and needs only its offsets.

    One question decides on nearly all batches. `validate` explains a refusal, and changes what has
    to be changed.
    """
    if origin is not _CLIENT:
        # The broker has just built it, with the present time.
        codec, kept = header[5] & COMPRESSION_MASK, rules.compression
        return len(data) <= rules.max_batch_bytes and (
            kept is None or kept == codec or header[5] & CONTROL > 0
        )
    base, length, _, _, crc, attributes, delta, base_ms, max_ms, producer, epoch, first, count = (
        header
    )
    size = len(data)
    if size != LOG_OVERHEAD + length or size > rules.max_batch_bytes or rules.log_append_time:
        return False
    codec = attributes & COMPRESSION_MASK
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    return not (
        base
        or count != delta + 1
        or not 0 < count * MIN_RECORD <= size - HEADER_SIZE
        or attributes & ~_OF_CLIENT
        or (codec and codec_error(data, codec))
        or rules.looks_inside
        or not earliest <= base_ms <= latest
        or not earliest <= max_ms <= latest
        or (first < 0 or epoch < 0 if producer >= 0 else attributes & TRANSACTIONAL)
        or crc32c((data if type(data) is memoryview else memoryview(data))[ATTRIBUTES_AT:]) != crc
    )


def validate(
    data: Buffer,
    rules: Rules,
    *,
    origin: Origin,
    now_ms: int,
) -> Validated:
    """Check a batch that a leader is asked to append; `now_ms` since the epoch.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE, and RecordsRefused for single records.
    """
    return at_once(validation(data, rules, origin=origin, now_ms=now_ms))


def validation(
    data: Buffer,
    rules: Rules,
    *,
    origin: Origin,
    now_ms: int,
    header: BatchHeader | None = None,
) -> RecordSteps[Validated]:
    """Do the work of `validate` in steps of at most RECORDS_PER_STEP; raises as it does.

    A step may yield codec work, which may run in a thread: send its result, or throw its error.
    `data` must not change until the end.
    """
    header = _one_batch(data, header)
    _check_batch(data, header, rules, origin is _CLIENT, now_ms)
    if rules.looks_inside:
        data, header = yield from _look_inside(data, header, rules, origin)
    if len(data) > rules.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(data)} bytes exceed the segment size of {rules.segment_bytes} bytes",
        )
    if rules.log_append_time:
        attributes = header.attributes | LOG_APPEND_TIME
        header = header._replace(attributes=attributes, max_timestamp=now_ms)
    return data, header


def validate_briefly(
    data: Buffer, rules: Rules, *, now_ms: int, header: BatchHeader | None
) -> Validated:
    """Do the work of `validate` for a client's batch; raise TakesLong if it needs `validation`.

    `header` is as `validate` takes it.
    """
    if header is not None and (
        len(data) > BYTES_PER_STEP or header.record_count > RECORDS_PER_STEP
    ):
        raise TakesLong
    return briefly(validation(data, rules, origin=_CLIENT, now_ms=now_ms, header=header))


def check_codec_of_version(
    data: Buffer, produce_version: int, header: BatchHeader | None = None
) -> None:
    """Refuse zstd from clients whose Produce version is older than the codec (KIP-110)."""
    if produce_version >= ZSTD_SINCE:
        return
    header = _one_batch(data, header)
    if header.compression == Compression.ZSTD:
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


def _one_batch(data: Buffer, header: BatchHeader | None) -> BatchHeader:
    # KIP-98: from Produce v3 on a partition's records are exactly one batch.
    if header is not None and LOG_OVERHEAD + header.batch_length == len(data):
        return header
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
    return header


def _check_batch(
    data: Buffer, header: BatchHeader, rules: Rules, from_client: bool, now_ms: int
) -> None:
    # Unpacked at once: one field of a named tuple costs as much as unpacking six.
    base, length, _, _, _, attributes, last_delta, base_ms, max_ms, producer, _, _, count = header
    if (size := LOG_OVERHEAD + length) > rules.max_message_bytes and (
        # Markers have no size limit: without its marker a transaction would never end. A low limit
        # for clients must not stop the coordinators.
        from_client or not (attributes & CONTROL or size <= COORDINATOR_BYTES)
    ):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes exceeds max.message.bytes, {rules.max_message_bytes}",
        )
    if not crc_matches(data, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if count <= 0 or count != last_delta + 1:
        raise _invalid(
            f"the batch header counts {count} records, but its last offset delta is {last_delta}"
        )
    codec = attributes & COMPRESSION_MASK
    if codec and (error := codec_error(data, codec)) is not None:
        raise error
    if count * MIN_RECORD > length - _RECORDS_AT:
        _check_count(header, rules)
    if from_client and (base or attributes & ~COMPRESSION_MASK or producer >= 0):
        _check_client_fields(header)
    if not rules.log_append_time:
        # Checked by the first and the greatest timestamp of the header: a walk over the records
        # would cost more than the rest of the append.
        earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
        if not (earliest <= base_ms <= latest and earliest <= max_ms <= latest):
            _check_timestamps(header, earliest, latest)


def codec_error(data: Buffer, codec: int) -> KafkaError | None:
    """Return the error for a compressed batch of an unknown codec, or whose first bytes show that
    Java cannot read it."""
    if codec > LAST_CODEC:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}")
    why = unreadable(codec, data[HEADER_SIZE : HEADER_SIZE + FIRST_BYTES])
    return None if why is None else _invalid(f"Kafka's Java clients cannot read {why}")


def _check_count(header: BatchHeader, rules: Rules) -> None:
    """Refuse more records than can be in the batch once it is decompressed."""
    size = header.size - HEADER_SIZE
    most = min(size * MAX_RATIO[Compression(header.compression)], _bound(header, rules))
    if header.record_count * MIN_RECORD > most:
        raise _invalid(f"{header.record_count} records cannot be in a batch of {size} bytes")


def _bound(header: BatchHeader, rules: Rules) -> int:
    # A coordinator's batch may be larger than the limit for clients.
    return inflation_bound(max(rules.max_message_bytes, header.size))


def _check_client_fields(header: BatchHeader) -> None:
    attributes, producer_id = header.attributes, header.producer_id
    if header.base_offset != 0:
        raise _invalid(f"the base offset of an appended batch must be 0, not {header.base_offset}")
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


def _look_inside(
    data: Buffer, header: BatchHeader, rules: Rules, origin: Origin
) -> RecordSteps[Validated]:
    # Records that the broker itself writes to a compacted topic have keys.
    needs_keys = rules.keys_required and origin is _CLIENT
    checks = needs_keys or (rules.validates_records and origin is _CLIENT)
    other_codec = rules.compression not in (None, header.compression) and not header.is_control
    bounds = rules.bounds_records and header.compression and origin is _CLIENT
    if not (checks or other_codec or bounds):
        return data, header
    copy = _Recompression(rules) if other_codec else None
    newest = yield from _check_records(data, header, rules, needs_keys, copy)
    if copy is None:
        return data, header
    yield copy.finish
    data = copy.batch(header._replace(max_timestamp=newest))
    return data, read_header(data)


def _check_records(
    batch: Buffer,
    header: BatchHeader,
    rules: Rules,
    needs_keys: bool,
    copy: "_Recompression | None",
) -> RecordSteps[int]:
    """Check every record; return the greatest timestamp."""
    checks = _RecordChecks(header, needs_keys)
    # A small batch must not be able to fill the memory.
    bound = _bound(header, rules)
    copy_to = None if copy is None else copy.add
    try:
        yield from each_record(batch, header, bound, checks.visit, copy_to, rules.max_record_bytes)
    except RecordTooLargeError:
        # As Kafka, without a text.
        raise KafkaError(ErrorCode.INVALID_RECORD) from None
    except ProtocolError as error:
        raise _invalid(str(error)) from None
    checks.refuse()
    return checks.newest


class _RecordChecks:
    """The checks of the records of one batch, one by one."""

    def __init__(self, header: BatchHeader, needs_keys: bool) -> None:
        self.newest = NO_TIMESTAMP
        """The greatest timestamp."""
        self._next_offset = header.base_offset
        self._base_offset = header.base_offset
        self._max_timestamp = header.max_timestamp
        self._needs_keys = needs_keys
        self._errors: list[RecordError] = []

    def visit(self, record: Record) -> bool:
        """Check the next record; return whether there are too many errors to continue."""
        if record.offset != self._next_offset:
            raise _invalid("the offsets of a batch's records are not consecutive")
        self._next_offset += 1
        if not NO_TIMESTAMP <= record.timestamp <= self._max_timestamp:
            raise _invalid(
                f"a record has timestamp {record.timestamp}, the maximum timestamp in the "
                f"batch header is {self._max_timestamp}"
            )
        self.newest = max(self.newest, record.timestamp)
        if self._needs_keys and record.key is None:
            text = "Compacted topic cannot accept message without key"
            self._errors.append(RecordError(record.offset - self._base_offset, text))
        return len(self._errors) == _MAX_ERRORS

    def refuse(self) -> None:
        """Raise RecordsRefused if there are records to refuse."""
        errors = self._errors
        if errors:
            shown = "; ".join(f"{e.batch_index}: {e.message}" for e in errors[:_SHOWN_ERRORS])
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD,
                f"One or more records have been rejected due to {len(errors)} record errors in "
                f"total, and only showing the first three errors at most: {shown}",
                tuple(errors),
            )


class _Recompression:
    """A batch in the topic's codec; it ends where it is too large."""

    def __init__(self, rules: Rules) -> None:
        self._codec = rules.compression or Compression.NONE
        self._stream = compressor(self._codec, rules.compression_level)
        self._body = bytearray()
        self._max_bytes = rules.max_message_bytes - HEADER_SIZE

    def add(self, piece: bytes) -> None:
        """Add decompressed bytes; raise MESSAGE_TOO_LARGE."""
        self._add(self._stream.compress(piece))

    def finish(self) -> None:
        """Complete the records; raises as `add` does."""
        self._add(self._stream.flush())

    def batch(self, header: BatchHeader) -> bytes:
        """Return the batch that `header` describes."""
        attributes = header.attributes & ~COMPRESSION_MASK | self._codec
        return pack_batch(header._replace(attributes=attributes), self._body)

    def _add(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > self._max_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has more than {HEADER_SIZE + self._max_bytes} bytes in the topic's "
                "codec, which is max.message.bytes",
            )
