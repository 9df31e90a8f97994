"""C14 on the files of stopped brokers.

Replicas must be byte-equal up to the high watermark, leader epoch checkpoints must match the
batches, and producer snapshots must be equal to a replay of the batches.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.disk.checkpoints import UnreadableFile, read_offsets
from barnabas.verify.disk.replica import DiskReplica, read_replica
from barnabas.verify.history import Partition
from barnabas.verify.wire.replicas import DAMAGED, Batch

CHECK: Final = "C14"
_CLEAN: Final = ".kafka_cleanshutdown"
_CLEANED: Final = "cleaner-offset-checkpoint"
"""The checkpoint of compacted logs. Its offsets are written a moment after the compaction."""


class Comparison(NamedTuple):
    """The result of a comparison."""

    partitions: int
    """The number of partitions with several replicas in the directories."""
    batches: int
    """The number of batches that were compared with those of another replica."""
    anomalies: list[Anomaly]


def compare(directories: Sequence[Path]) -> Comparison:
    """Compare log directories of different brokers.

    Raises FileNotFoundError for a directory that is not a log directory.
    """
    replicas: dict[Partition, dict[str, DiskReplica]] = {}
    anomalies: list[Anomaly] = []
    compacted = {at for each in directories for at in read_offsets(each / _CLEANED)}
    for directory in directories:
        for at, replica in _replicas(directory, compacted, anomalies):
            replicas.setdefault(at, {})[str(directory)] = replica
    partitions = batches = 0
    for at, found in sorted(replicas.items()):
        for who, replica in found.items():
            anomalies += _by_itself(who, replica)
        if len(found) > 1:
            partitions += 1
            (model, first), *others = sorted(found.items(), key=lambda each: -each[1].end)
            for who, replica in others:
                pair = _Pair(model, first, who, replica)
                batches += pair.compared
                anomalies += pair.differences(at)
    return Comparison(partitions, batches, anomalies)


def _replicas(
    directory: Path, compacted: set[Partition], anomalies: list[Anomaly]
) -> Iterator[tuple[Partition, DiskReplica]]:
    if not (directory / "meta.properties").exists():
        raise FileNotFoundError(f"{directory} is not a log directory")
    high_watermarks = read_offsets(directory / "replication-offset-checkpoint")
    for path in sorted(directory.iterdir()):
        topic, dash, index = path.name.rpartition("-")
        if not (path.is_dir() and dash and index.isdigit()):
            continue
        at = topic, int(index)
        try:
            replica = read_replica(path, at, high_watermarks.get(at, 0), compacted=at in compacted)
        except (UnreadableFile, ValueError) as error:
            anomalies.append(Anomaly(CHECK, "unreadable-file", str(error), at))
            continue
        replica.stopped_cleanly = (directory / _CLEAN).exists()
        yield at, replica


def _by_itself(who: str, replica: DiskReplica) -> Iterator[Anomaly]:
    at, committed = replica.at, replica.high_watermark
    if replica.end < committed:
        text = f"{who} ends at {replica.end}, below its high watermark {committed}"
        yield Anomaly(CHECK, "replica-short", text, at, replica.end)
    for offset in replica.gaps:
        yield Anomaly(CHECK, "missing-batch", f"{who} has nothing at {offset}", at, offset)
    for batch in replica.batches:
        if batch.crc == DAMAGED and batch.base_offset < committed:
            text = f"{who} has a batch that does not match its CRC"
            yield Anomaly(CHECK, "damaged-batch", text, at, batch.base_offset)
    if not replica.clean_until:
        yield from _epochs(who, replica)
    for offset, producer_id, told, shown in replica.stale:
        text = f"{who}: the snapshot has {told} of producer {producer_id}, the batches {shown}"
        yield Anomaly(CHECK, "wrong-snapshot", text, at, offset)


def _epochs(who: str, replica: DiskReplica) -> Iterator[Anomaly]:
    """Compare the leader epoch checkpoint with the batches.

    The checkpoint may have an epoch without batches at its end; after a crash its end may be
    missing.
    """
    told = [
        (epoch, max(start, replica.start)) for epoch, start in replica.epochs if start < replica.end
    ]
    shown = replica.written_epochs
    if told != shown and (replica.stopped_cleanly or told != shown[: len(told)]):
        text = f"{who}: the checkpoint has leader epochs {told}, the batches {shown}"
        yield Anomaly(CHECK, "wrong-epochs", text, replica.at)


class _Pair:
    """Two replicas, in the range below both high watermarks that cannot have been compacted."""

    def __init__(self, who: str, one: DiskReplica, other_who: str, other: DiskReplica) -> None:
        self._names = who, other_who
        start = max(one.start, other.start, one.clean_until, other.clean_until)
        end = min(one.high_watermark, other.high_watermark)
        self._range = range(start, end)
        self._here = self._of(one)
        self._there = self._of(other)
        self._snapshots = one.snapshots, other.snapshots

    def _of(self, replica: DiskReplica) -> dict[int, Batch]:
        return {each.base_offset: each for each in replica.batches if each[0] in self._range}

    @property
    def compared(self) -> int:
        return len(self._here.keys() & self._there.keys())

    def differences(self, at: Partition) -> Iterator[Anomaly]:
        one, other = self._names
        for base in sorted(self._here.keys() | self._there.keys()):
            here, there = self._here.get(base), self._there.get(base)
            if here != there:
                text = f"{one} has {here}, {other} {there}"
                yield Anomaly(CHECK, "replica-divergence", text, at, base)
        mine, theirs = self._snapshots
        for offset in sorted(mine.keys() & theirs.keys()):
            if offset <= self._range.stop and mine[offset] != theirs[offset]:
                text = f"{one} and {other} have different producers in their snapshots"
                yield Anomaly(CHECK, "snapshots-differ", text, at, offset)
