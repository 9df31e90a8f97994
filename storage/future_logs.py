"""Replicas on their way into another log directory of their broker (KIP-113).

    created    `<topic>-<partition>.<id>-future`, empty; the current log is copied into it
    settled    it has the partition's own name, durable with all that is in it: so have both now
    switched   it is the partition's log
    retired    the old one is renamed to `-delete`, when the new one is as durable

Of two that a crash leaves the next start takes the one that was written last (`furthest`), so it
does not matter where in between it was. Methods may run in a thread, but for `switch`.
"""

import os
from typing import TYPE_CHECKING

from barnabas.storage.log import Log
from barnabas.storage.log_dir import LogDir
from barnabas.storage.log_manager import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    MAX_NAME,
    STRAY_SUFFIX,
    LogManager,
)

if TYPE_CHECKING:
    from barnabas.protocol.topic_partition import TopicPartition

_ENDING = len(f".{bytes(16).hex()}{FUTURE_SUFFIX}")


def has_room(place: "TopicPartition") -> bool:
    """Whether the name of a future log is not too long for a directory."""
    return len(f"{place[0]}-{place[1]}") + _ENDING <= MAX_NAME


class FutureLogs:
    """What happens to `LogManager.futures`."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def create(self, current: Log, log_dir: LogDir) -> Log:
        """An empty one beside `current`, which has none; raises LogDirFailed."""
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

    def settle(self, future: Log) -> Log:
        """Gives it the partition's name, with all that it has durable; it as it is from now on.

        Raises LogDirFailed.
        """
        return self._rename(future, f"{future.topic}-{future.partition}")

    def unsettle(self, future: Log) -> Log:
        """Takes the name away again, so that a start goes on copying; raises LogDirFailed."""
        name = f"{future.topic}-{future.partition}{self._logs.ending(FUTURE_SUFFIX)}"
        return self._rename(future, name)

    def _rename(self, future: Log, name: str) -> Log:
        future.close()
        place, end = future.place, future.log_end_offset
        renamed = place._replace(directory=os.path.join(place.log_dir.path, name))
        try:
            place.files.rename(place.directory, renamed.directory)
            place.files.sync_dir(place.log_dir.path)
            log = self._logs.load(renamed, future.config, future.log_start_offset, end)
        except OSError as error:
            place.log_dir.fail(error)
        log.advance_high_watermark(future.high_watermark)
        self._logs.futures[future.topic, future.partition] = log
        return log

    def switch(self, current: Log, future: Log) -> None:
        """Makes a settled log that has everything the partition's log; raises LogDirFailed.

        What is known of producers in memory only comes along: a verification of a transaction, and
        those whose records retention took.
        """
        future.take_over(current)
        self._logs.replace(future)
        current.abandon()

    def retire(self, old: Log, *, durable_elsewhere: bool) -> None:
        """Lets the old log go, durably. Where the new one may lack something it is kept, aside.

        Raises LogDirFailed.
        """
        self._logs.put_aside(old, DELETE_SUFFIX if durable_elsewhere else STRAY_SUFFIX)
        try:
            old.place.files.sync_dir(old.log_dir.path)
        except OSError as error:
            old.log_dir.fail(error)
