"""One replica of one partition, read from its files."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.protocol.records.batch import (
    BatchHeader,
    CorruptRecordError,
    crc_matches,
    read_header,
)
from barnabas.protocol.records.control import read_marker
from barnabas.verify.disk.checkpoints import read_entries
from barnabas.verify.disk.producers import Producer, Replay, read_snapshot
from barnabas.verify.history import Place
from barnabas.verify.wire.replicas import DAMAGED, Batch

PRODUCER_EXPIRY_MS: Final = 24 * 3600 * 1000
"""`producer.id.expiration.ms` by default: who was silent for longer may be in no snapshot."""


@dataclass(slots=True)
class DiskReplica:
    """What one directory says. Reading stops at the first bytes that are no batch."""

    at: Place
    high_watermark: int
    clean_until: int
    """Compaction may have been below this offset: there each replica has batches of its own."""
    start: int = 0
    end: int = 0
    stopped_in_order: bool = False
    batches: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs and where they began, by the checkpoint."""
    snapshots: dict[int, dict[int, Producer]] = field(default_factory=dict)
    gaps: list[int] = field(default_factory=list)
    """Offsets after which something is missing."""
    stale: list[tuple[int, int, Producer | None, Producer | None]] = field(default_factory=list)
    """What a snapshot does not have as the batches do: offset, producer id, both entries."""

    @property
    def written_epochs(self) -> list[tuple[int, int]]:
        """Leader epochs and where they began, by the batches."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if not found or batch.leader_epoch != found[-1][0]:
                found.append((batch.leader_epoch, batch.base_offset))
        return found


def read_replica(
    directory: Path, at: Place, high_watermark: int, *, compacted: bool
) -> DiskReplica:
    """Raises UnreadableFile for checkpoints and snapshots that are damaged."""
    logs = sorted(directory.glob("*.log"))
    # The segment that is written to is never compacted.
    clean_until = int(logs[-1].stem) if compacted and logs else 0
    replica = DiskReplica(at, high_watermark, clean_until)
    epochs = read_entries(directory / "leader-epoch-checkpoint", 2)
    replica.epochs = [(int(epoch), int(start)) for epoch, start in epochs]
    for path in sorted(directory.glob("*.snapshot")):
        replica.snapshots[int(path.stem)] = read_snapshot(path)
    replica.start = replica.end = int(logs[0].stem) if logs else 0
    whole = not replica.start and not clean_until
    replay = Replay()
    for path in logs:
        for data, pos, header in _batches(path):
            _check_snapshot(replica, replay, header.base_offset, whole=whole)
            if header.base_offset != replica.end and header.base_offset >= clean_until:
                replica.gaps.append(replica.end)
            sound = crc_matches(data, pos, header)
            replica.batches.append(
                Batch(
                    header.base_offset,
                    header.size,
                    header.partition_leader_epoch,
                    header.crc if sound else DAMAGED,
                )
            )
            replica.end = header.next_offset
            if sound:
                _play(replay, data, pos, header)
    _check_snapshot(replica, replay, replica.end, whole=whole)
    return replica


def _batches(path: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    data, pos = path.read_bytes(), 0
    while pos < len(data):
        try:
            header = read_header(data, pos)
        except CorruptRecordError:
            return
        yield data, pos, header
        pos += header.size


def _play(replay: Replay, data: bytes, pos: int, header: BatchHeader) -> None:
    if not header.is_control:
        replay.batch(header)
        return
    marker = read_marker(data, pos, header)
    if marker is not None:
        replay.marker(header, marker.coordinator_epoch)


def _check_snapshot(replica: DiskReplica, replay: Replay, offset: int, *, whole: bool) -> None:
    """Where the log was read from its beginning, a snapshot is what the batches before it say."""
    snapshot = replica.snapshots.get(offset)
    if snapshot is None or not whole:
        return
    newest = max((each.timestamp for each in replay.producers.values()), default=0)
    for producer_id in sorted(snapshot.keys() | replay.producers.keys()):
        told, shown = snapshot.get(producer_id), replay.producers.get(producer_id)
        expired = told is None and shown is not None
        if expired and shown.timestamp < newest - PRODUCER_EXPIRY_MS:  # type: ignore[union-attr]
            continue
        if told != shown:
            replica.stale.append((offset, producer_id, told, shown))
