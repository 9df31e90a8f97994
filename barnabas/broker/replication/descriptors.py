"""The file descriptors of a broker: whether new partitions would have one, and files to close.

Each partition with records needs a descriptor for appends, and each connection has one. A topic
whose partitions would not have any is refused when it is created. Partitions may lack descriptors
nevertheless: the limit was lowered, or other files have them. Then an append fails, clients repeat
it, and the broker closes the files of partitions that are idle.
"""

import math
from collections.abc import Callable, Iterable, Sized
from typing import Final, Protocol

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.network import without_reserve
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.log.log import Log

RELEASE_S: Final = 0.1
"""The least time in seconds between two searches for idle partitions. A partition is idle if it has
not grown since the search before."""
RELEASED_AT_ONCE: Final = 256
"""Partitions whose files are closed, or flushed to be closed, after one search."""
LOG_S: Final = 10.0
"""The least time in seconds between two log events of one kind."""
_ADVICE: Final = "raise the limit of open files: ulimit -n, or LimitNOFILE of the service"
_log = get_logger(__name__)


class Partitions(Sized, Iterable[Partition], Protocol):
    """All partitions of this broker."""


class Descriptors:
    """The file descriptors of a broker, shared by its partitions and its connections."""

    def __init__(self, most_open: Callable[[], int | None], monotonic: Callable[[], float]) -> None:
        """`most_open` returns the limit of the process; None without one."""
        self._most_open = most_open
        self._monotonic = monotonic
        self._partitions: Partitions = ()
        self.connections: Callable[[], int] = lambda: 0
        """Returns the number of open connections."""
        self._ends: dict[Log, int] = {}
        """The logs whose files were open at the last search, and their ends."""
        self._releases = False
        """The result of the last search."""
        self._released_at = self._short_at = self._refused_at = -math.inf

    def begin(self, partitions: Partitions) -> None:
        """Count `partitions` from now on."""
        self._partitions = partitions

    def require(self, new: int) -> None:
        """Raise POLICY_VIOLATION unless `new` more partitions would have descriptors."""
        limit = self._most_open()
        if limit is None:
            return
        partitions, connections = len(self._partitions), self.connections()
        if new + partitions + connections <= without_reserve(limit):
            return
        if (now := self._monotonic()) - self._refused_at >= LOG_S:
            self._refused_at = now
            _log.error(
                "topic refused: too few file descriptors",
                new_partitions=new,
                **self._usage(limit),
                advice=_ADVICE,
            )
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The broker may open {limit} files and has {partitions} partitions and {connections} "
            f"connections: {new} more partitions would have no file descriptors.",
        )

    def run_short(self, cause: OSError) -> None:
        """Close files of idle partitions, because a file could not be opened; log it."""
        now = self._monotonic()
        if now - self._short_at >= LOG_S:
            self._short_at = now
            _log.error(
                "out of file descriptors",
                reason=str(cause),
                **self._usage(self._most_open()),
                advice=_ADVICE,
            )
        self.release_files()

    def release_files(self) -> bool:
        """Close files of idle partitions; those that are not flushed are flushed first.

        Returns whether such files are known yet.
        """
        now = self._monotonic()
        if now - self._released_at < RELEASE_S:
            return self._releases
        self._released_at = now
        before, self._ends = self._ends, {}
        self._releases = False
        left = RELEASED_AT_ONCE
        for partition in self._partitions:
            log = partition.log
            if not log.holds_file:
                continue
            end = log.log_end_offset
            if left and before.get(log) == end:
                left -= 1
                self._releases = True
                if log.release_file():
                    continue
                # The next search closes it.
                partition.flush_soon()
            self._ends[log] = end
        if not before:
            self._releases = bool(self._ends)
        return self._releases

    def _usage(self, limit: int | None) -> dict[str, int | None]:
        return {
            "limit": limit,
            "partitions": len(self._partitions),
            "connections": self.connections(),
        }
