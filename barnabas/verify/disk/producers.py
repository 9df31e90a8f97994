"""The producer state of a snapshot file, and that of a replay of the batches (KIP-98)."""

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.checksum import crc32c
from barnabas.verify.disk.checkpoints import UnreadableFile

NOTHING = -1
_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ROW = Struct(">qhiqiqiq")
_SEQUENCES = 2**31


class Producer(NamedTuple):
    """One row of a snapshot, in its order; `timestamp` in ms."""

    producer_id: int
    epoch: int
    last_sequence: int = NOTHING
    last_offset: int = NOTHING
    offset_delta: int = 0
    timestamp: int = NOTHING
    coordinator_epoch: int = NOTHING
    open_since: int = NOTHING
    """The first offset of the open transaction."""


def read_snapshot(path: Path) -> dict[int, Producer]:
    """Return the rows by producer id; raises UnreadableFile."""
    data = path.read_bytes()
    rows = data[_HEAD.size + _COUNT.size :]
    if len(data) < _HEAD.size + _COUNT.size:
        raise UnreadableFile(f"{path} is cut off")
    version, crc = _HEAD.unpack_from(data)
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if version != _VERSION or crc != crc32c(data[_HEAD.size :]) or len(rows) != count * _ROW.size:
        raise UnreadableFile(f"{path} is no snapshot")
    return {row[0]: Producer(*row) for row in _ROW.iter_unpack(rows)}


class Replay:
    """The producer state after the replayed batches."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}

    def batch(self, header: BatchHeader) -> None:
        """Replay a batch of records."""
        if header.producer_id < 0:
            return
        known = self._known(header)
        sequence = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
        starts = header.is_transactional and known.open_since == NOTHING
        self.producers[header.producer_id] = known._replace(
            last_sequence=sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp=header.max_timestamp,
            open_since=header.base_offset if starts else known.open_since,
        )

    def marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Replay a marker, which ends a transaction."""
        self.producers[header.producer_id] = self._known(header)._replace(
            timestamp=header.max_timestamp, coordinator_epoch=coordinator_epoch, open_since=NOTHING
        )

    def _known(self, header: BatchHeader) -> Producer:
        """Return the producer of a batch; a new epoch starts with new sequences."""
        known = self.producers.get(header.producer_id)
        if known is None:
            return Producer(header.producer_id, header.producer_epoch)
        if known.epoch == header.producer_epoch:
            return known
        return Producer(
            known.producer_id,
            header.producer_epoch,
            timestamp=known.timestamp,
            coordinator_epoch=known.coordinator_epoch,
            open_since=known.open_since,
        )
