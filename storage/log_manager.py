"""All logs of a broker over its log directories: opening, making, deleting, checkpoints, closing.

Synchronous: the broker decides what runs on the loop and what in a thread. `create`, `delete` and
the `run` of jobs may run in a thread, one at a time; everything else belongs on the loop.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage import dir_marks
from barnabas.storage.checkpoint_job import CheckpointJob
from barnabas.storage.dir_marks import BrokerIdentity, Marks, claim, mark_closed, take_marks
from barnabas.storage.errors import LogDirFailed
from barnabas.storage.files import Files, Lock, make_dirs
from barnabas.storage.log import Log
from barnabas.storage.log_copy import covers, furthest
from barnabas.storage.log_dir import DOUBT, Checkpoints, LogDir
from barnabas.storage.log_parts import LogOptions, LogPlace
from barnabas.storage.meta_properties import MetaPropertiesError, read_topic_id, write_topic_id
from barnabas.storage.recovery import load_log
from barnabas.storage.removals import Removals

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

LOCK = ".lock"
DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX = "-delete", "-stray", "-future"
MAX_NAME = 255
"""Bytes of a name in a directory."""

_PARTITION_DIR = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)(?P<future>\.[0-9a-f]{32}-future)?\Z"
)

Key = tuple[str, int]
"""Topic and partition."""
TopicConfigs = Callable[[str], "TopicConfig"]


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
    ) -> None:
        """`on_failure` is told once of each directory that goes offline."""
        self._files = files
        self._identity = identity
        self._now_ms = now_ms
        self._rng = rng
        self._logs: dict[Key, Log] = {}
        self.futures: dict[Key, Log] = {}
        """Replicas on their way into another directory; see `FutureLogs`."""
        self.preferred: dict[Key, LogDir] = {}
        """Where a log is to be made, once its partition comes."""
        self._locks: dict[str, Lock] = {}
        self._removals = Removals(files, now_ms)
        self._options = LogOptions(producer_expiration_ms, self._roll_jitter, self._checkpoint_now)
        self.last_run = Marks(clean=True, is_new=False, same_boot=True)
        """How the process before left the directories: the worst of each."""
        self._settled = False
        self.dirs = [LogDir(files, os.path.abspath(path), on_failure=on_failure) for path in paths]

    # --- opening

    def open(self, topic_config: TopicConfigs) -> None:
        """Locks the directories and opens every log in them.

        A directory whose disk fails is offline. Raises BlockingIOError where another broker has
        one, MetaPropertiesError where one is another's, LogDirFailed where none is left.
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
        self._sort_out(found, futures)
        if not self.online_dirs:
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "no log directory is usable")

    def _open_dir(self, log_dir: LogDir, topic_config: TopicConfigs) -> Iterator[tuple[Log, bool]]:
        """Every log in a directory, and whether it is a future one."""
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
                LogPlace(files, log_dir, directory, *key, read_topic_id(files, directory)),
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

    def settle(self) -> None:
        """Whoever has to know how the last run ended, knows it: the next start need not say it
        again. Until then a directory that was not closed stays one, however often it is opened."""
        self._settled = True
        dir_marks.settle(self._files, self.dirs, self._identity.boot_id)

    def _sort_out(self, found: list[Log], futures: list[Log]) -> None:
        """Which log of a partition goes on, where a move between directories was interrupted."""
        for log in found:
            key = log.topic, log.partition
            if (twin := self._logs.get(key)) is not None:
                if log.topic_id != twin.topic_id:
                    raise MetaPropertiesError(
                        f"{key[0]}-{key[1]} is in {twin.log_dir.path} and in another log directory"
                    )
                log, other = furthest(log, twin)
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
        """The log, also where its directory is offline; None if there is none."""
        return self._logs.get((topic, partition))

    @property
    def logs(self) -> list[Log]:
        """All logs."""
        return list(self._logs.values())

    @property
    def online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    def logs_in(self, log_dir: LogDir) -> list[Log]:
        """All that lie there, future ones too."""
        return [log for log in (*self.logs, *self.futures.values()) if log.log_dir is log_dir]

    def directory(self, path: str) -> LogDir:
        """The entry of log.dirs; raises KafkaError(LOG_DIR_NOT_FOUND), or LogDirFailed."""
        for log_dir in self.dirs:
            if log_dir.path == path:
                log_dir.require_online()
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not in the config.")

    def is_future(self, log: Log) -> bool:
        return self.futures.get((log.topic, log.partition)) is log

    def space(self, log_dir: LogDir) -> tuple[int, int]:
        """Bytes in all and bytes free of the directory's volume; raises LogDirFailed."""
        log_dir.require_online()
        try:
            return self._files.space(log_dir.path)
        except OSError as error:
            log_dir.fail(error)

    # --- making and deleting

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: "TopicConfig",
        *,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition, made where there is none: in the directory that is preferred for
        it, else in that with the fewest logs.

        A partition that is not new may lie in a directory that is offline: then nothing is made.
        Raises LogDirFailed.
        """
        key = topic, partition
        if (known := self._logs.get(key)) is not None:
            return known
        online = self.online_dirs
        if not online or (not is_new and len(online) < len(self.dirs)):
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "a log directory is offline")
        log_dir = self.preferred.pop(key, None)
        if log_dir not in online:
            log_dir = min(online, key=lambda each: len(self.logs_in(each)))
        log = self.make(log_dir, key, topic_id, config)
        self._logs[key] = log
        return log

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
        """An empty log that begins at `start`, which nobody finds yet; raises LogDirFailed."""
        name = f"{key[0]}-{key[1]}{suffix}"
        place = LogPlace(self._files, log_dir, os.path.join(log_dir.path, name), *key, topic_id)
        try:
            if key in log_dir.written.recovery_points or key in log_dir.written.log_starts:
                # Of a log of that name that is gone: it must not speak for this one after a crash.
                self._checkpoint_now(log_dir)
            self._files.make_dir(place.directory)
            write_topic_id(self._files, place.directory, topic_id)
            return self.load(place, config, start)
        except OSError as error:
            log_dir.fail(error)

    def load(self, place: LogPlace, config: "TopicConfig", start: int, end: int = 0) -> Log:
        """Opens a log that was closed at `end`; raises OSError."""
        return load_log(
            place,
            config,
            self._options,
            clean=True,
            recovery_point=end,
            log_start_offset=start,
            now_ms=self._now_ms(),
        )

    def replace(self, future: Log) -> None:
        """A future log is its partition's log now, and whoever was it is on its own."""
        key = future.topic, future.partition
        self._logs[key] = self.futures.pop(key)

    def delete(self, topic: str, partition: int) -> None:
        """Takes the log out of service; its files go after file.delete.delay.ms.

        Raises LogDirFailed.
        """
        self._set_aside(topic, partition, DELETE_SUFFIX)

    def set_stray(self, topic: str, partition: int) -> None:
        """Takes a log out of service that the cluster knows nothing of, and keeps its files."""
        self._set_aside(topic, partition, STRAY_SUFFIX)

    def _set_aside(self, topic: str, partition: int, suffix: str) -> None:
        self.drop_future(topic, partition)
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            self.put_aside(log, suffix)

    def drop_future(self, topic: str, partition: int) -> None:
        """Deletes a replica on its way, if there is one; raises LogDirFailed."""
        if (future := self.futures.pop((topic, partition), None)) is not None:
            self.put_aside(future, DELETE_SUFFIX)

    def put_aside(self, log: Log, suffix: str) -> None:
        """Gives the directory of a log that nobody finds any more a name that says so.

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
        """What makes the name of a directory its own."""
        return f".{self._rng.randbytes(16).hex()}{suffix}"

    def due_removals(self) -> list[str]:
        """Paths whose time has come; see `Removals`."""
        return self._removals.due(self.logs)

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files and directories; raises OSError."""
        self._removals.remove(paths)

    # --- checkpoints

    def begin_checkpoint(self, log_dir: LogDir) -> CheckpointJob:
        """What is to be written down now of a directory's logs."""
        logs = {(log.topic, log.partition): log for log in self.logs_in(log_dir)}
        checkpoints = Checkpoints(
            recovery_points={key: log.flushed_offset for key, log in logs.items()},
            log_starts={key: log.log_start_offset for key, log in logs.items()},
            high_watermarks={key: log.high_watermark for key, log in logs.items()},
        )
        return CheckpointJob(log_dir, checkpoints, logs)

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """A checkpoint was written: crashes scan from there. Raises LogDirFailed."""
        if job.error is not None:
            job.log_dir.fail(job.error)
        if job.generation == job.log_dir.generation:
            for key, log in job.logs.items():
                log.recovery_point = job.checkpoints.recovery_points[key]

    def _checkpoint_now(self, log_dir: LogDir) -> None:
        """On the spot, because what stands on disk is no longer true; raises OSError."""
        log_dir.void_checkpoints()
        job = self.begin_checkpoint(log_dir)
        job.run()
        if job.error is not None:
            raise job.error
        self.finish_checkpoint(job)

    # --- closing

    def close_share(self, share: int, of: int) -> None:
        """`close` for every `of`-th log, to be had in threads side by side before it: so thousands
        of logs do not wait for the disk one after another."""
        for log in [*self.logs, *self.futures.values()][share::of]:
            with suppress(LogDirFailed):
                log.close()

    def close(self) -> None:
        """Flushes and closes every log, and marks the directories that are whole as closed, unless
        what their last run may have lost is still to be told; see `settle`."""
        for log_dir in self.online_dirs:
            try:
                for log in self.logs_in(log_dir):
                    log.close()
                self._checkpoint_now(log_dir)
                if self._settled or self.last_run.clean:
                    mark_closed(self._files, log_dir.path)
            except LogDirFailed:
                continue
            except OSError as error:
                log_dir.take_offline(error)
        self._release()

    def abandon(self) -> None:
        """Lets go of everything without a flush: the next start recovers."""
        for log in (*self.logs, *self.futures.values()):
            log.abandon()
        self._release()

    def _release(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def _roll_jitter(self, max_ms: int) -> int:
        return self._rng.randrange(max_ms) if max_ms > 0 else 0
