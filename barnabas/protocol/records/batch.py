"""The header of a record batch (KIP-98, message format v2), read without decompressing the records.

The first 61 bytes hold everything that a broker needs to order, fence and serve a batch. Base
offset and leader epoch are not covered by the CRC, so that they can be set in place.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.varint import Buffer

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes that `batch_length` does not count: the base offset and the length itself."""
MAGIC = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp is the delete horizon, after which tombstones may be dropped (KIP-534)."""


_HEADER = Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_as_tuple = tuple.__new__
_PREFIX = Struct(">qi")
_CRC = Struct(">I")
HEAD: Final = Struct(">qiibI")
"""The part of a header that the CRC does not cover, and the CRC."""
COVERED: Final = Struct(">hiqqqhii")
"""The rest of a header."""
set_base_offset_and_epoch: Final = Struct(">qii").pack_into
"""`(buf, position, base_offset, batch_length, leader_epoch)`: set the fields that the leader
assigns, in place; the CRC does not cover them. The length between them does not change."""
_STAMP = Struct(">hiqq")
_MAGIC = Struct(">b")
_EXTENT = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta."""
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")
_MAGIC_AT = 16
_CRC_AT = 17
ATTRIBUTES_AT = 21
_PRODUCER_AT = 43
_SHORTEST = HEADER_SIZE - LOG_OVERHEAD
"""The least value of `batch_length`: a batch without records."""


class CorruptRecordError(ProtocolError):
    """Bytes that cannot be a record batch; a producer gets CORRUPT_MESSAGE."""


class UnsupportedMagicError(CorruptRecordError):
    """A message of format v0 or v1, which Kafka 4 does not support either (KIP-724)."""


HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`: a plain tuple is taken apart in half the time of a named one."""


class BatchHeader(NamedTuple):
    """The fields of a batch header, in wire order; times are in ms since the epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number; 5 to 7 are undefined (see `Compression`)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 is CreateTime, 1 is LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buf: Buffer, pos: int = 0, whole: bool = True) -> BatchHeader:
    """Return the header at `pos`, as `header_fields` reads it."""
    # The same as `_make`, in one call instead of two.
    return _as_tuple(BatchHeader, header_fields(buf, pos, whole))


def header_fields(buf: Buffer, pos: int = 0, whole: bool = True) -> HeaderFields:
    """Return the fields of the header at `pos`, after checking its length against the bytes there.

    Unless it has to be `whole`, the batch may end behind them: the caller compares the length with
    the file or the request. (By its position: a keyword would cost as much as the rest.)
    Raise CorruptRecordError. The caller checks the CRC (`crc_matches`).
    """
    try:
        fields: HeaderFields = _unpack_header(buf, pos)
    except StructError:
        raise _no_header(buf, pos) from None
    length = fields[1]
    if (
        fields[3] != MAGIC
        or length < _SHORTEST
        or (whole and length > len(buf) - pos - LOG_OVERHEAD)
    ):
        raise _no_header(buf, pos)
    return fields


def header_of(buf: Buffer) -> BatchHeader | None:
    """Return the header with which bytes begin, whole or not; None if they begin with no batch."""
    try:
        return read_header(buf, 0, False)
    except CorruptRecordError:
        return None


def _no_header(buf: Buffer, pos: int) -> CorruptRecordError:
    """Return the error for bytes that are not a batch of message format v2."""
    remaining = len(buf) - pos
    # An old message may be shorter than a v2 header: report the real reason.
    magic = _MAGIC.unpack_from(buf, pos + _MAGIC_AT)[0] if remaining > _MAGIC_AT else MAGIC
    if 0 <= magic < MAGIC:
        return UnsupportedMagicError(f"message format v{magic} is not supported")
    if remaining < HEADER_SIZE:
        return CorruptRecordError(f"a batch header has {HEADER_SIZE} bytes, {remaining} are left")
    if magic != MAGIC:
        return CorruptRecordError(f"unknown message format: magic {magic}")
    size = read_prefix(buf, pos)[1]
    return CorruptRecordError(f"batch of {size} bytes does not fit the {remaining} there")


def begins_transactional(buf: Buffer) -> bool:
    """Return whether bytes begin with a transactional batch of message format v2, whole or not.

    Two bytes tell it: every Produce request is asked where there is an authorizer.
    """
    return (
        len(buf) >= HEADER_SIZE
        and bool(buf[ATTRIBUTES_AT + 1] & TRANSACTIONAL)
        and buf[_MAGIC_AT] == MAGIC
    )


def read_prefix(buf: Buffer, pos: int = 0) -> tuple[int, int]:
    """Return base offset and size of the batch at `pos`: 12 bytes are enough to walk a log."""
    base_offset, length = _PREFIX.unpack_from(buf, pos)
    return base_offset, LOG_OVERHEAD + length


def read_extent(buf: Buffer, pos: int) -> tuple[int, int, int]:
    """Return the first offset of the batch at `pos`, the offset behind it, and its size.

    Raises CorruptRecordError for a header that is not whole in `buf`, or that no batch has.
    """
    try:
        base_offset, length, magic, last_offset_delta = _EXTENT.unpack_from(buf, pos)
    except StructError:
        raise _no_header(buf, pos) from None
    if magic != MAGIC or length < _SHORTEST or last_offset_delta < 0:
        raise _no_header(buf, pos)
    return base_offset, base_offset + last_offset_delta + 1, LOG_OVERHEAD + length


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch; raise CorruptRecordError for an invalid one."""
    pos = 0
    while pos < len(buf):
        header = read_header(buf, pos)
        yield pos, header
        pos += LOG_OVERHEAD + header[1]


def crc_matches(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Return whether the header's CRC matches the CRC-32C of all bytes from the attributes on."""
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    return crc32c(view[pos + ATTRIBUTES_AT : pos + LOG_OVERHEAD + header[1]]) == header[4]


def set_append_time(buf: bytearray | memoryview, pos: int, now_ms: int) -> None:
    """Set the batch at `pos` to LogAppendTime `now_ms`, and update its CRC."""
    attributes, delta, base, _ = _STAMP.unpack_from(buf, pos + ATTRIBUTES_AT)
    _STAMP.pack_into(buf, pos + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME, delta, base, now_ms)
    _, size = read_prefix(buf, pos)
    _CRC.pack_into(buf, pos + _CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + size]))


def set_producer(
    buf: bytearray | memoryview,
    pos: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool,
) -> None:
    """Set the fields of the producer of the batch at `pos` in place, and update its CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(buf, pos + ATTRIBUTES_AT)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(buf, pos + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _, size = read_prefix(buf, pos)
    _CRC.pack_into(buf, pos + _CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + size]))


def pack_batch(header: BatchHeader, body: Buffer) -> bytes:
    """Build a batch from its fields and its (compressed) records; length and CRC are computed."""
    return bytes(pack_mutable_batch(header, body))


def pack_mutable_batch(header: Sequence[int], body: Buffer) -> bytearray:
    """Build a batch as `pack_batch` does, whose producer and offset can still be set in place.

    `header` has the fields of a `BatchHeader`.
    """
    out = bytearray(HEADER_SIZE)
    out += body
    set_header(out, header)
    return out


def set_header(batch: bytearray, header: Sequence[int]) -> None:
    """Set the header of a batch whose records are in their place; length and CRC are computed."""
    base_offset, _, leader_epoch, _, _, *covered = header
    COVERED.pack_into(batch, ATTRIBUTES_AT, *covered)
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    HEAD.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch, MAGIC, crc)
