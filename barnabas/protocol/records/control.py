"""Control batches: the transaction markers that partitions hold (KIP-98, section 5.2)."""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from barnabas.protocol.records.batch import (
    CONTROL,
    COVERED,
    HEAD,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    HeaderFields,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import PIECE
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.records.varint import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_FORM = "7sh3sib"
_RECORD = Struct(f">{_FORM}")
"""A control record as Kafka writes it: all varints have one byte."""
_PACK_TAIL: Final = Struct(COVERED.format + _FORM).pack
"""Packs a marker from its attributes on."""
_BEFORE_TYPE = b"\x20\0\0\0\x08\0\0"
"""The lengths of record and key (varints: the double), attributes, deltas, the key's version."""
_BEFORE_EPOCH = b"\x0c\0\0"
"""The value's length and version."""
_LENGTH = HEADER_SIZE - LOG_OVERHEAD + _RECORD.size


class ControlType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1


_new = tuple.__new__
_COMMIT = ControlType.COMMIT.value
_TYPES = tuple(each.value for each in ControlType)


class TxnMarker(NamedTuple):
    """The end of a producer's transaction in one partition, as its coordinator decided it.

    A partition refuses a marker whose coordinator epoch is below one that it has seen.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """The `transaction.version` that rules the producer epoch (KIP-890). It is not in the batch."""

    @property
    def type(self) -> ControlType:
        return ControlType.COMMIT if self.committed else ControlType.ABORT

    def packed(self, timestamp: int) -> tuple[bytearray, HeaderFields]:
        """Return the control batch with this marker, and its header."""
        producer_id, producer_epoch, coordinator_epoch, committed, _ = self
        covered = (
            TRANSACTIONAL | CONTROL, 0, timestamp, timestamp, producer_id, producer_epoch,
            NO_SEQUENCE, 1,
        )  # fmt: skip
        tail = _PACK_TAIL(*covered, _BEFORE_TYPE, committed, _BEFORE_EPOCH, coordinator_epoch, 0)
        head = 0, _LENGTH, -1, MAGIC, crc32c(tail)
        return bytearray(HEAD.pack(*head) + tail), head + covered


def read_marker(buf: Buffer, pos: int, header: BatchHeader) -> TxnMarker | None:
    """Return the marker in the control batch at `pos`; None for other types of control records.

    None also for a batch without a record: compaction keeps the last batch of a producer, which may
    be a marker's.
    """
    if not header.record_count:
        return None
    if header.batch_length == _LENGTH:
        before, kind, between, epoch, headers = _RECORD.unpack_from(buf, pos + HEADER_SIZE)
        if before == _BEFORE_TYPE and between == _BEFORE_EPOCH and not headers and kind in _TYPES:
            fields = header.producer_id, header.producer_epoch, epoch, kind == _COMMIT, 0
            return _new(TxnMarker, fields)
    # Control batches are not compressed: more than one piece would be no marker.
    record = next(iter_records(buf, pos, header, max_bytes=PIECE), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecordError("a control batch without a control record")
    _, kind = _KEY.unpack_from(record.key)
    if kind not in _TYPES:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecordError("a transaction marker without its coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return TxnMarker(header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT)
