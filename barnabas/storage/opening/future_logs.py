"""Replicas that move to another log directory of their broker (KIP-113).

    created    the future log is `<topic>-<partition>.<id>-future`, empty; the current log is copied
               into it
    renamed    the future log is durable under the partition's own name; the current log has the
               same name in its own log directory
    switched   the future log is the partition's log
    retired    the old log is renamed to `-delete`, once the new one is as durable

A crash may come at any point: if it leaves two logs of one name, the next start uses the one that
was written last (`furthest`). All methods but `switch` may run in a thread.
"""

import os
from typing import TYPE_CHECKING

from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.log import Log
from barnabas.storage.opening.log_manager import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    MAX_NAME,
    STRAY_SUFFIX,
    LogManager,
)

if TYPE_CHECKING:
    from barnabas.protocol.topic_partition import TopicPartition

_ENDING = len(f".{bytes(16).hex()}{FUTURE_SUFFIX}")


def can_be_named(partition: "TopicPartition") -> bool:
    """Return whether the name of the partition's future log fits the limit for file names."""
    return len(f"{partition[0]}-{partition[1]}") + _ENDING <= MAX_NAME


class FutureLogs:
    """The moves of `LogManager.futures` from creation to retirement."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def create(self, current: Log, log_dir: LogDir) -> Log:
        """Create an empty future log for `current`, which has none; raises LogDirFailed."""
        start = current.segments.batch_start(current.log_start_offset)
        key = current.topic, current.partition
        log = self._logs.make(
            log_dir,
            key,
            current.topic_id,
            current.config,
            start=start,
            suffix=self._logs.ending(FUTURE_SUFFIX),
        )
        self._logs.futures[key] = log
        return log

    def rename_to_current(self, future: Log) -> Log:
        """Close the future log, rename it to the partition's name, and return it reopened.

        Its content and its name are durable then. Raises LogDirFailed.
        """
        return self._rename(future, f"{future.topic}-{future.partition}")

    def rename_to_future(self, future: Log) -> Log:
        """Undo `rename_to_current`, so that the next start continues the copy; raises
        LogDirFailed."""
        name = f"{future.topic}-{future.partition}{self._logs.ending(FUTURE_SUFFIX)}"
        return self._rename(future, name)

    def _rename(self, future: Log, name: str) -> Log:
        future.close()
        location, end = future.location, future.log_end_offset
        renamed = location._replace(directory=os.path.join(location.log_dir.path, name))
        try:
            location.files.rename(location.directory, renamed.directory)
            location.files.sync_dir(location.log_dir.path)
            log = self._logs.load(renamed, future.config, future.log_start_offset, end)
        except OSError as error:
            location.log_dir.fail(error)
        log.advance_high_watermark(future.high_watermark)
        self._logs.futures[future.topic, future.partition] = log
        return log

    def switch(self, current: Log, future: Log) -> None:
        """Make a renamed and complete future log the partition's log; raises LogDirFailed.

        Producer state that exists only in memory is carried over: transaction verifications, and
        producers whose records retention has deleted.
        """
        future.take_over(current)
        self._logs.replace(future)
        current.abandon()

    def retire(self, old: Log, *, durable_elsewhere: bool) -> None:
        """Retire the old log, durably. Its files are kept if the new log may lack records.

        Raises LogDirFailed.
        """
        self._logs.put_aside(old, DELETE_SUFFIX if durable_elsewhere else STRAY_SUFFIX)
        try:
            old.location.files.sync_dir(old.log_dir.path)
        except OSError as error:
            old.log_dir.fail(error)
