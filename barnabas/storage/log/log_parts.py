"""The parts of a log: its location, the result of its recovery, and the services of its manager."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.storage.files.files import Files, Syncable
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.leader_epochs import LeaderEpochCache
from barnabas.storage.log.segments import Segments
from barnabas.storage.producers.snapshot import Snapshots
from barnabas.storage.producers.state import ProducerStateManager

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig


class LogAppendInfo(NamedTuple):
    """The offsets of a request's records. `log_append_time` is -1 unless the broker set the
    time."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class LogLocation(NamedTuple):
    """The partition of a log, and its directory."""

    files: Files
    log_dir: LogDir
    directory: str
    topic: str
    partition: int
    topic_id: bytes


class LogParts(NamedTuple):
    """The result of a recovery. Everything below `recovery_point` is known to be durable."""

    segments: Segments
    producers: ProducerStateManager
    snapshots: Snapshots
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    unsynced: list[Syncable]
    """Complete files that may not be durable."""
    closed: bool
    """Whether the last process has closed the log, and its files are as they were then."""


class LogOptions(NamedTuple):
    """The services that the log manager provides to each log."""

    producer_expiration_ms: Callable[[], int]
    """The producer expiration in ms, read at every use because it may change."""
    roll_jitter: Callable[[int], int]
    """Returns a random time in ms, less than its argument, to be subtracted from segment.ms."""
    checkpoint: Callable[[LogDir], None]
    """Writes a directory's checkpoints at once, because a recovery point has moved back."""
    rolled: RolledLogs
    gave_up_files: "Callable[[TrimmedLog], None]" = lambda _: None
    """Called when a log has files to be deleted."""
    explain: bool = False
    """Whether every appended batch is validated at length (`fast.paths.enable=false`)."""


class TrimmedLog(Protocol):
    """A log, as the removal of its files has it."""

    to_delete: list[str]

    @property
    def config(self) -> "TopicConfig": ...
