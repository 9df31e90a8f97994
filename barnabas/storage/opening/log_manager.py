"""All logs of a broker: opening, creating, deleting, checkpointing and closing them.

The manager is synchronous: the broker decides what runs on the event loop and what in a thread.
`create`, `delete` and the `run` of jobs may run in a thread, one at a time; everything else runs on
the event loop.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.files.errors import LogDirFailed, OutOfDescriptors, lacks_descriptors
from barnabas.storage.files.files import Files, Lock, make_dirs
from barnabas.storage.files.log_dir import DOUBT, Checkpoints, LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_copy import covers, furthest
from barnabas.storage.log.log_parts import LogLocation, LogOptions, TrimmedLog
from barnabas.storage.opening import dir_marks
from barnabas.storage.opening.dir_marks import BrokerIdentity, Marks, claim, mark_closed, take_marks
from barnabas.storage.opening.meta_properties import (
    MetaPropertiesError,
    read_topic_id,
    write_topic_id,
)
from barnabas.storage.opening.recovery import load_log

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

LOCK = ".lock"
DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX = "-delete", "-stray", "-future"
MAX_NAME = 255
"""Bytes of a file name."""

_PARTITION_DIR = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)(?P<future>\.[0-9a-f]{32}-future)?\Z"
)

Key = tuple[str, int]
"""Topic and partition."""
TopicConfigs = Callable[[str], "TopicConfig"]


class CheckpointJob:
    """A write of one directory's checkpoints.

    Call `run` in a thread, then `LogManager.finish_checkpoint` on the event loop.
    """

    def __init__(
        self, log_dir: LogDir, checkpoints: Checkpoints, logs: Mapping[tuple[str, int], Log]
    ) -> None:
        """`logs` by topic and partition."""
        self.log_dir = log_dir
        self.checkpoints = checkpoints
        self.logs = logs
        self.error: OSError | None = None
        self.generation = log_dir.generation

    def run(self) -> None:
        """Write the checkpoints; keep a failure in `error` for the event loop to handle."""
        try:
            self.log_dir.write_checkpoints(self.checkpoints, self.generation)
        except OSError as error:
            self.error = error


class _PendingDelete(NamedTuple):
    due_ms: int
    path: str


class PendingDeletes:
    """Files and directories to be removed `file.delete.delay.ms` after they were renamed.

    Times are in ms since the epoch.
    """

    def __init__(self, files: Files, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._now_ms = now_ms
        self._pending: list[_PendingDelete] = []
        self._trimmed: dict[TrimmedLog, None] = {}

    def note(self, log: TrimmedLog) -> None:
        """Note that a log has given up files; may run in any thread."""
        self._trimmed[log] = None

    def add(self, path: str, delay_ms: int) -> None:
        self._pending.append(_PendingDelete(self._now_ms() + delay_ms, path))

    def due(self) -> list[str]:
        """Return the paths whose delay has passed, each once, for `remove` in a thread.

        The files that logs have given up since the last call are added first.
        """
        for log in list(self._trimmed):
            del self._trimmed[log]
            for path in log.to_delete:
                self.add(path, log.config.file_delete_delay_ms)
            log.to_delete.clear()
        now_ms = self._now_ms()
        due = [each.path for each in self._pending if each.due_ms <= now_ms]
        self._pending = [each for each in self._pending if each.due_ms > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and directories; raises OSError."""
        for path in paths:
            if not self._files.exists(path):
                # The log was deleted meanwhile, with its whole directory.
                continue
            if self._files.is_dir(path):
                self._files.remove_tree(path)
            else:
                self._files.unlink(path)


class LogManager:
    """The logs of one broker, by topic and partition. Times in ms since the epoch."""

    def __init__(
        self,
        files: Files,
        paths: Iterable[str],
        identity: BrokerIdentity,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        producer_expiration_ms: Callable[[], int],
        on_failure: Callable[[LogDirFailed], None] | None = None,
        on_shortage: Callable[[OSError], None] | None = None,
        explain: bool = False,
    ) -> None:
        """`on_failure` is called once for each directory that goes offline, `on_shortage` for each
        call that finds no free file descriptor. `explain` is as in `LogOptions`."""
        self._files = files
        self._identity = identity
        self._now_ms = now_ms
        self._rng = rng
        self._logs: dict[Key, Log] = {}
        self.futures: dict[Key, Log] = {}
        """Replicas that move to another directory; see `FutureLogs`."""
        self.preferred: dict[Key, LogDir] = {}
        """Directories in which logs will be created, for partitions that have none yet."""
        self._locks: dict[str, Lock] = {}
        self._removals = PendingDeletes(files, now_ms)
        self.rolled = RolledLogs()
        """The logs that wait for a flush of rolled segments or of a producer snapshot."""
        self._options = LogOptions(
            producer_expiration_ms,
            self._roll_jitter,
            self._checkpoint_now,
            self.rolled,
            self._removals.note,
            explain,
        )
        self.last_run = Marks(clean=True, is_new=False, same_boot=True)
        """The marks of the previous process: the worst of each, over all directories."""
        self._last_run_acknowledged = False
        self.dirs = [
            LogDir(files, os.path.abspath(path), on_failure=on_failure, on_shortage=on_shortage)
            for path in paths
        ]

    # --- opening

    def open(self, topic_config: TopicConfigs) -> None:
        """Lock the directories and open every log in them.

        A directory whose disk fails is offline. Raises BlockingIOError if another broker has a
        directory locked, MetaPropertiesError if one belongs to another broker, LogDirFailed if none
        is left.
        """
        found: list[Log] = []
        futures: list[Log] = []
        for log_dir in self.dirs:
            try:
                for log, is_future in self._open_dir(log_dir, topic_config):
                    (futures if is_future else found).append(log)
            except BlockingIOError:
                self._release()
                raise
            except OSError as error:
                log_dir.take_offline(error)
        self.last_run = self.last_run.worst(dir_marks.take_missing(self._files, self.dirs))
        self._register(found, futures)
        if not self.online_dirs:
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "no log directory is usable")

    def _open_dir(self, log_dir: LogDir, topic_config: TopicConfigs) -> Iterator[tuple[Log, bool]]:
        """Yield every log in a directory, and whether it is a future log."""
        files, path = self._files, log_dir.path
        make_dirs(files, path)
        self._locks[path] = files.lock(os.path.join(path, LOCK))
        log_dir.directory_id = claim(files, path, self._identity, self._rng)
        doubt = os.path.join(path, DOUBT)
        marks, doubtful = take_marks(files, path, self._identity.boot_id), files.exists(doubt)
        self.last_run = self.last_run.worst(marks)
        checkpoints = log_dir.read_checkpoints()
        for name in files.listdir(path):
            directory = os.path.join(path, name)
            if name.endswith(DELETE_SUFFIX) and files.is_dir(directory):
                files.remove_tree(directory)
                continue
            match = _PARTITION_DIR.match(name)
            if match is None or not files.is_dir(directory):
                continue
            key = match["topic"], int(match["partition"])
            log = load_log(
                LogLocation(files, log_dir, directory, *key, read_topic_id(files, directory)),
                topic_config(match["topic"]),
                self._options,
                clean=marks.clean,
                recovery_point=checkpoints.recovery_points.get(key, 0),
                log_start_offset=checkpoints.log_starts.get(key, 0),
                now_ms=self._now_ms(),
                doubtful=doubtful,
            )
            log.advance_high_watermark(checkpoints.high_watermarks.get(key, 0))
            yield log, match["future"] is not None
        if doubtful:
            files.unlink(doubt)

    def acknowledge_last_run(self) -> None:
        """Record that the cluster knows how the last run ended.

        Until then an unclean directory stays marked as unclean, however often it is opened.
        """
        self._last_run_acknowledged = True
        dir_marks.forget_last_run(self._files, self.dirs, self._identity.boot_id)

    def _register(self, found: list[Log], futures: list[Log]) -> None:
        """Register the logs that were opened.

        A move between directories that was interrupted leaves two logs of one partition: the one
        that was written last is used.
        """
        for log in found:
            key = log.topic, log.partition
            if (registered := self._logs.get(key)) is not None:
                if log.topic_id != registered.topic_id:
                    raise MetaPropertiesError(
                        f"{key[0]}-{key[1]} is in {registered.log_dir.path} and in "
                        f"{log.log_dir.path}"
                    )
                log, other = furthest(log, registered)
                self._put_aside_found(other, DELETE_SUFFIX if covers(log, other) else STRAY_SUFFIX)
            self._logs[key] = log
        whole = len(self.online_dirs) == len(self.dirs)
        for log in futures:
            current = self._logs.get(key := (log.topic, log.partition))
            wanted = not whole if current is None else current.topic_id == log.topic_id
            if wanted and key not in self.futures:
                self.futures[key] = log
            else:
                self._put_aside_found(log, DELETE_SUFFIX)

    def _put_aside_found(self, log: Log, suffix: str) -> None:
        with suppress(LogDirFailed):
            self.put_aside(log, suffix)

    # --- finding

    def get(self, topic: str, partition: int) -> Log | None:
        """Return the log, also if its directory is offline; None if it does not exist."""
        return self._logs.get((topic, partition))

    @property
    def logs(self) -> list[Log]:
        """Return all logs."""
        return list(self._logs.values())

    @property
    def online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    def logs_in(self, log_dir: LogDir) -> list[Log]:
        """Return all logs in a directory, future logs included."""
        return [log for log in (*self.logs, *self.futures.values()) if log.log_dir is log_dir]

    def directory(self, path: str) -> LogDir:
        """Return the entry of log.dirs; raises KafkaError(LOG_DIR_NOT_FOUND), or LogDirFailed."""
        for log_dir in self.dirs:
            if log_dir.path == path:
                log_dir.require_online()
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not in the config.")

    def is_future(self, log: Log) -> bool:
        return self.futures.get((log.topic, log.partition)) is log

    def space(self, log_dir: LogDir) -> tuple[int, int]:
        """Return the total and the free bytes of the directory's volume; raises LogDirFailed."""
        log_dir.require_online()
        try:
            return self._files.space(log_dir.path)
        except OSError as error:
            log_dir.fail(error)

    #

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: "TopicConfig",
        *,
        is_new: bool = True,
    ) -> Log:
        """Return the log of a partition, created if missing: in its preferred directory, else in
        the directory with the fewest logs.

        If the partition is not new and a directory is offline, its log may be there: then no log is
        created. Raises LogDirFailed.
        """
        key = topic, partition
        if (known := self._logs.get(key)) is not None:
            return known
        online = self.online_dirs
        if not online or (not is_new and len(online) < len(self.dirs)):
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "a log directory is offline")
        log_dir = self.preferred.pop(key, None)
        if log_dir not in online:
            log_dir = self._emptiest(online)
        log = self.make(log_dir, key, topic_id, config)
        self._logs[key] = log
        return log

    def _emptiest(self, dirs: list[LogDir]) -> LogDir:
        """Return the directory with the fewest logs, future logs included."""
        if len(dirs) == 1:
            # Each log of a new topic would count all others: half of the time for 4,000 partitions.
            return dirs[0]
        # Copies, because the event loop may change the originals meanwhile.
        counts = Counter(log.log_dir for log in (*self.logs, *self.futures.values()))
        return min(dirs, key=counts.__getitem__)

    def make(
        self,
        log_dir: LogDir,
        key: Key,
        topic_id: bytes,
        config: "TopicConfig",
        *,
        start: int = 0,
        suffix: str = "",
    ) -> Log:
        """Create an empty log that begins at `start` and is not registered yet; raises
        LogDirFailed."""
        name = f"{key[0]}-{key[1]}{suffix}"
        location = LogLocation(
            self._files, log_dir, os.path.join(log_dir.path, name), *key, topic_id
        )
        try:
            if key in log_dir.written.recovery_points or key in log_dir.written.log_starts:
                # Checkpoint entries of a deleted log with this name must not apply to the new one
                # after a crash.
                self._checkpoint_now(log_dir)
            self._files.make_dir(location.directory)
            try:
                write_topic_id(self._files, location.directory, topic_id)
                return self.load(location, config, start)
            except OSError as error:
                if lacks_descriptors(error):
                    # The next attempt must not find the directory.
                    self._files.remove_tree(location.directory)
                raise
        except OSError as error:
            log_dir.fail(error)

    def load(self, location: LogLocation, config: "TopicConfig", start: int, end: int = 0) -> Log:
        """Open a log that was closed at `end`; raises OSError."""
        return load_log(
            location,
            config,
            self._options,
            clean=True,
            recovery_point=end,
            log_start_offset=start,
            now_ms=self._now_ms(),
        )

    def replace(self, future: Log) -> None:
        """Make a future log the log of its partition, in place of the current one."""
        key = future.topic, future.partition
        self._logs[key] = self.futures.pop(key)

    def delete(self, topic: str, partition: int) -> None:
        """Take the log out of service; its files are removed after file.delete.delay.ms.

        Raises LogDirFailed.
        """
        self._take_out(topic, partition, DELETE_SUFFIX)

    def set_stray(self, topic: str, partition: int) -> None:
        """Take a log that the cluster does not know out of service, and keep its files."""
        self._take_out(topic, partition, STRAY_SUFFIX)

    def _take_out(self, topic: str, partition: int, suffix: str) -> None:
        self.drop_future(topic, partition)
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            self.put_aside(log, suffix)
            log.producers.discard()

    def drop_future(self, topic: str, partition: int) -> None:
        """Delete the future log, if there is one; raises LogDirFailed."""
        if (future := self.futures.pop((topic, partition), None)) is not None:
            self.put_aside(future, DELETE_SUFFIX)

    def put_aside(self, log: Log, suffix: str) -> None:
        """Rename the directory of a log that is out of service, so that the next start skips it.

        Raises LogDirFailed.
        """
        log.abandon()
        log.log_dir.require_online()
        ending = self.ending(suffix)
        name = f"{log.topic}-{log.partition}"[: MAX_NAME - len(ending)] + ending
        path = os.path.join(log.log_dir.path, name)
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            log.log_dir.fail(error)
        if suffix == DELETE_SUFFIX:
            self._removals.add(path, log.config.file_delete_delay_ms)

    def ending(self, suffix: str) -> str:
        """Return a unique suffix for the name of a directory."""
        return f".{self._rng.randbytes(16).hex()}{suffix}"

    def due_removals(self) -> list[str]:
        """Return the paths to be removed now; see `PendingDeletes`."""
        return self._removals.due()

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and directories; raises OSError."""
        self._removals.remove(paths)

    # --- checkpoints

    def begin_checkpoint(self, log_dir: LogDir) -> CheckpointJob:
        """Return the job that checkpoints a directory's logs as they are now."""
        logs = {(log.topic, log.partition): log for log in self.logs_in(log_dir)}
        checkpoints = Checkpoints(
            recovery_points={key: log.flushed_offset for key, log in logs.items()},
            log_starts={key: log.log_start_offset for key, log in logs.items()},
            high_watermarks={key: log.high_watermark for key, log in logs.items()},
        )
        return CheckpointJob(log_dir, checkpoints, logs)

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Note that a checkpoint was written: recovery scans from there. Raises LogDirFailed."""
        if job.error is not None:
            job.log_dir.fail(job.error)
        if job.generation == job.log_dir.generation:
            for key, log in job.logs.items():
                log.recovery_point = job.checkpoints.recovery_points[key]

    def _checkpoint_now(self, log_dir: LogDir) -> None:
        """Write the checkpoints at once, because those on disk are wrong; raises OSError."""
        log_dir.void_checkpoints()
        job = self.begin_checkpoint(log_dir)
        job.run()
        if job.error is not None:
            raise job.error
        self.finish_checkpoint(job)

    # --- closing

    def close_share(self, share: int, of: int) -> None:
        """Close every `of`-th log, beginning with the `share`-th.

        Before `close`, parallel threads call it with different shares: thousands of logs then do
        not wait for the disk one after another.
        """
        for log in [*self.logs, *self.futures.values()][share::of]:
            with suppress(LogDirFailed, OutOfDescriptors):
                log.close()

    def close(self) -> None:
        """Flush and close every log, and mark the directories as closed.

        A directory is not marked if it has failed, if files could not be opened, or if the last run
        was unclean and the cluster does not know of it yet; see `acknowledge_last_run`.
        """
        for log_dir in self.online_dirs:
            try:
                for log in self.logs_in(log_dir):
                    log.close()
                self._checkpoint_now(log_dir)
                if self._last_run_acknowledged or self.last_run.clean:
                    mark_closed(self._files, log_dir.path)
            except (LogDirFailed, OutOfDescriptors):
                continue
            except OSError as error:
                log_dir.take_offline(error)
        self._release()

    def abandon(self) -> None:
        """Release everything without a flush: the next start recovers."""
        for log in (*self.logs, *self.futures.values()):
            log.abandon()
        self._release()

    def _release(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def _roll_jitter(self, max_ms: int) -> int:
        return self._rng.randrange(max_ms) if max_ms > 0 else 0
