"""Control batches: what a transaction's end writes into each partition (KIP-98, section 5.2)."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader, CorruptRecordError
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.records.varint import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The second half of a control record's key."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """A transaction marker; the coordinator epoch fences markers of an older coordinator."""

    type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: Marker, *, offset: int, timestamp: int, producer_id: int, producer_epoch: int
) -> bytes:
    """The control batch that ends a producer's transaction in one partition."""
    record = Record(
        offset, timestamp, _KEY.pack(0, marker.type), _VALUE.pack(0, marker.coordinator_epoch)
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(buf: Buffer, pos: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `pos`; None for control types that end no transaction."""
    record = next(iter_records(buf, pos, header), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecordError("a control batch without a control record")
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecordError("a transaction marker without its coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return Marker(ControlType(kind), coordinator_epoch)
