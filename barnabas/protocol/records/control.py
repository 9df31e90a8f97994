"""Control batches: the transaction markers that partitions hold (KIP-98, section 5.2)."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from barnabas.protocol.records.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    pack_tail,
)
from barnabas.protocol.records.compression import PIECE
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.records.varint import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_RECORD = Struct(">bbbbbhhbhib")
"""A control record with its length, its deltas, the lengths of key and value, and no headers."""
_DOUBLED = 2
"""Lengths and deltas are zig-zag variable-length integers: a short one is the double of itself."""


class ControlType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1


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

    def batch(self, timestamp: int, offset: int = 0) -> bytes:
        """Return the control batch with this marker."""
        record = Record(
            offset, timestamp, _KEY.pack(0, self.committed), _VALUE.pack(0, self.coordinator_epoch)
        )
        return build_batch(
            [record],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional=True,
            control=True,
        )

    def tail(self, timestamp: int) -> bytes:
        """Return the control batch with this marker, from its attributes on (`add_head`)."""
        record = _RECORD.pack(
            _DOUBLED * (_RECORD.size - 1), 0, 0, 0,
            _DOUBLED * _KEY.size, 0, self.committed,
            _DOUBLED * _VALUE.size, 0, self.coordinator_epoch,
            0,
        )  # fmt: skip
        attributes = TRANSACTIONAL | CONTROL
        return pack_tail(attributes, 1, timestamp, self.producer_id, self.producer_epoch, record)


def read_marker(buf: Buffer, pos: int, header: BatchHeader) -> TxnMarker | None:
    """Return the marker in the control batch at `pos`; None for other types of control records.

    None also for a batch without a record: compaction keeps the last batch of a producer, which may
    be a marker's.
    """
    if not header.record_count:
        return None
    # Control batches are not compressed: more than one piece would be no marker.
    record = next(iter_records(buf, pos, header, max_bytes=PIECE), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecordError("a control batch without a control record")
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecordError("a transaction marker without its coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return TxnMarker(
        header.producer_id, header.producer_epoch, coordinator_epoch, kind == ControlType.COMMIT
    )
