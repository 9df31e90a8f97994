"""All logs of a broker over its log directories: opening, making, deleting, checkpoints, closing.

Synchronous: the broker decides what runs on the loop and what in a thread. `create`, `delete` and
the `run` of jobs may run in a thread, one at a time; everything else belongs on the loop.
"""

import os
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.errors import LogDirFailed
from barnabas.storage.files import Files, Lock, make_dirs, write_atomic
from barnabas.storage.log import Log
from barnabas.storage.log_dir import DOUBT, Checkpoints, LogDir
from barnabas.storage.log_parts import LogOptions, LogPlace
from barnabas.storage.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta,
    read_topic_id,
    write_meta,
    write_topic_id,
)
from barnabas.storage.recovery import load_log

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = ".boot_id"
DELETE_SUFFIX, STRAY_SUFFIX = "-delete", "-stray"

_PARTITION_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)\Z")
_MAX_NAME = 255

Key = tuple[str, int]
"""Topic and partition."""
TopicConfigs = Callable[[str], "TopicConfig"]


class BrokerIdentity(NamedTuple):
    """Whose directories these are; the kernel has a new `boot_id` after each start."""

    broker_id: int
    cluster_id: str
    boot_id: str


class Doomed(NamedTuple):
    """A file or directory that nobody finds any more, to be removed from `due_ms` on."""

    due_ms: int
    path: str


class CheckpointJob:
    """Writes the checkpoints of one directory: `run` in a thread, then
    `LogManager.finish_checkpoint`."""

    def __init__(self, log_dir: LogDir, checkpoints: Checkpoints, logs: dict[Key, Log]) -> None:
        self.log_dir = log_dir
        self.checkpoints = checkpoints
        self.logs = logs
        self.error: OSError | None = None
        self.generation = log_dir.generation

    def run(self) -> None:
        """A failure is kept in `error` for the loop to act on."""
        try:
            self.log_dir.write_checkpoints(self.checkpoints, self.generation)
        except OSError as error:
            self.error = error


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
        producer_expiration_ms: int,
        on_failure: Callable[[LogDirFailed], None] | None = None,
    ) -> None:
        """`on_failure` is told once of each directory that goes offline."""
        self._files = files
        self._identity = identity
        self._now_ms = now_ms
        self._rng = rng
        self._logs: dict[Key, Log] = {}
        self._locks: dict[str, Lock] = {}
        self._doomed: list[Doomed] = []
        self._options = LogOptions(producer_expiration_ms, self._roll_jitter, self._checkpoint_now)
        self.was_clean = True
        """Whether every directory was closed by the process before."""
        self.same_boot = True
        """Whether the machine has run through since: then its page cache has lost nothing."""
        self.dirs = [LogDir(files, os.path.abspath(path), on_failure=on_failure) for path in paths]

    # --- opening

    def open(self, topic_config: TopicConfigs) -> None:
        """Locks the directories and opens every log in them.

        A directory whose disk fails is offline. Raises BlockingIOError where another broker has
        one, MetaPropertiesError where one is another's, LogDirFailed where none is left.
        """
        for log_dir in self.dirs:
            try:
                self._open_dir(log_dir, topic_config)
            except BlockingIOError:
                self._release()
                raise
            except OSError as error:
                log_dir.take_offline(error)
        if not self.online_dirs:
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "no log directory is usable")

    def _open_dir(self, log_dir: LogDir, topic_config: TopicConfigs) -> None:
        files, path = self._files, log_dir.path
        make_dirs(files, path)
        self._locks[path] = files.lock(os.path.join(path, LOCK))
        log_dir.directory_id = self._claim(path)
        doubt = os.path.join(path, DOUBT)
        clean, doubtful = self._take_shutdown_marks(path), files.exists(doubt)
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
            if key in self._logs:
                raise MetaPropertiesError(f"{name} is in {path} and in another log directory")
            place = LogPlace(files, log_dir, directory, *key, read_topic_id(files, directory))
            self._logs[key] = log = load_log(
                place,
                topic_config(match["topic"]),
                self._options,
                clean=clean,
                recovery_point=checkpoints.recovery_points.get(key, 0),
                log_start_offset=checkpoints.log_starts.get(key, 0),
                now_ms=self._now_ms(),
                doubtful=doubtful,
            )
            log.advance_high_watermark(checkpoints.high_watermarks.get(key, 0))
        if doubtful:
            files.unlink(doubt)

    def _claim(self, path: str) -> bytes:
        """The directory's id, once it is known to be this broker's."""
        identity, meta = self._identity, read_meta(self._files, path)
        if meta is None:
            directory_id = self._rng.randbytes(16)
            meta = MetaProperties(identity.broker_id, identity.cluster_id, directory_id)
            write_meta(self._files, path, meta)
        if (meta.broker_id, meta.cluster_id) != (identity.broker_id, identity.cluster_id):
            raise MetaPropertiesError(
                f"{path} belongs to broker {meta.broker_id} of cluster {meta.cluster_id}, this is "
                f"broker {identity.broker_id} of cluster {identity.cluster_id}"
            )
        return meta.directory_id

    def _take_shutdown_marks(self, path: str) -> bool:
        """Whether the directory was closed; from now on it is not."""
        files, mark = self._files, os.path.join(path, CLEAN_SHUTDOWN)
        boot_path = os.path.join(path, BOOT_ID)
        boot_id = ""
        if files.exists(boot_path):
            boot_id = files.read_bytes(boot_path).decode(errors="replace")
        clean = files.exists(mark)
        self.was_clean &= clean or not boot_id
        self.same_boot &= boot_id in ("", self._identity.boot_id)
        if boot_id != self._identity.boot_id:
            write_atomic(files, boot_path, self._identity.boot_id.encode())
        if clean:
            files.unlink(mark)
            files.sync_dir(path)
        return clean

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
        return [log for log in self.logs if log.log_dir is log_dir]

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
        """The log of a partition, made in the directory with the fewest logs if there is none.

        A partition that is not new may lie in a directory that is offline: then nothing is made.
        Raises LogDirFailed.
        """
        key = topic, partition
        if (known := self._logs.get(key)) is not None:
            return known
        online = self.online_dirs
        if not online or (not is_new and len(online) < len(self.dirs)):
            raise LogDirFailed(", ".join(d.path for d in self.dirs), "a log directory is offline")
        log_dir = min(online, key=lambda each: len(self.logs_in(each)))
        try:
            log = self._make(log_dir, key, topic_id, config)
        except OSError as error:
            log_dir.fail(error)
        self._logs[key] = log
        return log

    def _make(self, log_dir: LogDir, key: Key, topic_id: bytes, config: "TopicConfig") -> Log:
        topic, partition = key
        if key in log_dir.written.recovery_points or key in log_dir.written.log_starts:
            # Of a deleted log with the same name: it must not speak for this one after a crash.
            self._checkpoint_now(log_dir)
        directory = os.path.join(log_dir.path, f"{topic}-{partition}")
        self._files.make_dir(directory)
        write_topic_id(self._files, directory, topic_id)
        return load_log(
            LogPlace(self._files, log_dir, directory, topic, partition, topic_id),
            config,
            self._options,
            clean=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=self._now_ms(),
        )

    def delete(self, topic: str, partition: int) -> None:
        """Takes the log out of service; its files go after file.delete.delay.ms.

        Raises LogDirFailed.
        """
        self._set_aside(topic, partition, DELETE_SUFFIX)

    def set_stray(self, topic: str, partition: int) -> None:
        """Takes a log out of service that the cluster knows nothing of, and keeps its files."""
        self._set_aside(topic, partition, STRAY_SUFFIX)

    def _set_aside(self, topic: str, partition: int, suffix: str) -> None:
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return
        log.abandon()
        log.log_dir.require_online()
        ending = f".{self._rng.randbytes(16).hex()}{suffix}"
        name = f"{topic}-{partition}"[: _MAX_NAME - len(ending)] + ending
        path = os.path.join(log.log_dir.path, name)
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            log.log_dir.fail(error)
        if suffix == DELETE_SUFFIX:
            due_ms = self._now_ms() + log.config.file_delete_delay_ms
            self._doomed.append(Doomed(due_ms, path))

    def due_removals(self) -> list[str]:
        """Paths whose time has come, each told once: for `remove`, in a thread."""
        now_ms = self._now_ms()
        for log in self.logs:
            due_ms = now_ms + log.config.file_delete_delay_ms
            self._doomed += [Doomed(due_ms, path) for path in log.doomed]
            log.doomed.clear()
        due = [each.path for each in self._doomed if each.due_ms <= now_ms]
        self._doomed = [each for each in self._doomed if each.due_ms > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files and directories; raises OSError."""
        for path in paths:
            if not self._files.exists(path):
                # Its log was deleted meanwhile, and took it along.
                continue
            if self._files.is_dir(path):
                self._files.remove_tree(path)
            else:
                self._files.unlink(path)

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

    def close(self) -> None:
        """Flushes and closes every log, and marks the directories that are whole as closed."""
        for log_dir in self.online_dirs:
            try:
                for log in self.logs_in(log_dir):
                    log.close()
                self._checkpoint_now(log_dir)
                mark = os.path.join(log_dir.path, CLEAN_SHUTDOWN)
                write_atomic(self._files, mark, b'{"version":0,"brokerEpoch":-1}')
            except LogDirFailed:
                continue
            except OSError as error:
                log_dir.take_offline(error)
        self._release()

    def abandon(self) -> None:
        """Lets go of everything without a flush: the next start recovers."""
        for log in self.logs:
            log.abandon()
        self._release()

    def _release(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def _roll_jitter(self, max_ms: int) -> int:
        return self._rng.randrange(max_ms) if max_ms > 0 else 0
