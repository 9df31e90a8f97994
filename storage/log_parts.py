"""What a log is made of: where it lies, what recovery found of it, what its manager lends it."""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.storage.files import File, Files
from barnabas.storage.leader_epochs import LeaderEpochCache
from barnabas.storage.log_dir import LogDir
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.segments import Segments


class Appended(NamedTuple):
    """Where a request's records are. `log_append_time` is -1 unless the broker set the time."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class LogPlace(NamedTuple):
    """Whose log it is, and where it lies."""

    files: Files
    log_dir: LogDir
    directory: str
    topic: str
    partition: int
    topic_id: bytes


class LogParts(NamedTuple):
    """What recovery has found. All of it below `recovery_point` is known to be durable."""

    segments: Segments
    producers: ProducerStateManager
    snapshots: Snapshots
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    unsynced: list[File]
    """Complete files that may not be durable."""


class LogOptions(NamedTuple):
    """What the log manager lends each of its logs."""

    producer_expiration_ms: Callable[[], int]
    """How long a producer may be idle, asked whenever its state is rebuilt: it may change."""
    roll_jitter: Callable[[int], int]
    """A random time of at most so many ms, taken off segment.ms."""
    checkpoint: Callable[[LogDir], None]
    """Writes a directory's checkpoints at once: a recovery point has fallen."""
