"""A replica of a partition, read from its files."""

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
from barnabas.verify.history import Partition
from barnabas.verify.wire.replicas import DAMAGED, Batch

PRODUCER_EXPIRY_MS: Final = 24 * 3600 * 1000
"""The default `producer.id.expiration.ms`: producers that are idle longer may be missing."""


@dataclass(slots=True)
class DiskReplica:
    """The contents of a partition directory, up to the first bytes that are not a batch."""

    at: Partition
    high_watermark: int
    clean_until: int
    """The offset below which compaction may have run: there the batches of replicas differ."""
    start: int = 0
    end: int = 0
    stopped_cleanly: bool = False
    batches: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs and their start offsets in the checkpoint."""
    snapshots: dict[int, dict[int, Producer]] = field(default_factory=dict)
    gaps: list[int] = field(default_factory=list)
    """Offsets at which batches are missing."""
    stale: list[tuple[int, int, Producer | None, Producer | None]] = field(default_factory=list)
    """Snapshot entries that differ from the replay: offset, producer id, both entries."""

    @property
    def written_epochs(self) -> list[tuple[int, int]]:
        """The leader epochs and their start offsets in the batches."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if not found or batch.leader_epoch != found[-1][0]:
                found.append((batch.leader_epoch, batch.base_offset))
        return found


def read_replica(
    directory: Path, at: Partition, high_watermark: int, *, compacted: bool
) -> DiskReplica:
    """Read the files of a replica; raises UnreadableFile for damaged checkpoints and snapshots."""
    logs = sorted(directory.glob("*.log"))
    # The active segment is never compacted.
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
    """Compare a snapshot with the replay, if the log was read from its beginning (`whole`)."""
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
