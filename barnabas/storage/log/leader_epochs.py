"""Leader epochs: the first offset that each leader wrote to a log (KIP-101, KIP-279).

From an epoch a follower or consumer learns how far its log agrees with the leader's. Epochs are
kept in memory, and in the log's directory as `leader-epoch-checkpoint`.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from barnabas.storage.files.checkpoints import CorruptCheckpointError, read_lines, write_lines
from barnabas.storage.files.files import Files

CHECKPOINT_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_start_offset = attrgetter("start_offset")
_epoch = attrgetter("epoch")


class EpochEntry(NamedTuple):
    """The leader of `epoch` wrote from `start_offset` up to the next entry's start offset."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one log; epochs and start offsets both rise strictly.

    Methods that may change the cache return whether they did: the caller then writes the
    checkpoint.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """The latest epoch; UNDEFINED_EPOCH if the log never had a leader."""
        for entry in entries:
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that the leader of `epoch` writes from `start_offset` on; return whether this is
        new.

        Entries that contradict it, by epoch or by offset, are dropped: a truncation has removed
        what they describe.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; UNDEFINED_EPOCH before the first known one."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the greatest known epoch that is not after `epoch`, and its end offset
        (exclusive).

        Returns (-1, -1) if `epoch` is undefined or later than every known one.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        index = bisect_right(self._entries, epoch, key=_epoch)
        if index == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end = self._entries[index].start_offset
        # Earlier epochs have no entry; they end at the start of the first one.
        return (self._entries[index - 1].epoch if index else epoch), end

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that began at `end_offset` or later."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        return self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop epochs that ended before `start_offset`; the one in force there starts there."""
        index = bisect_right(self._entries, start_offset, key=_start_offset)
        if not index:
            return False
        first = EpochEntry(self._entries[index - 1].epoch, start_offset)
        return self._replace([first, *self._entries[index:]])

    def clear(self) -> bool:
        return self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> bool:
        changed = entries != self._entries
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH
        return changed


def write_epochs(files: Files, directory: str, cache: LeaderEpochCache) -> None:
    """Write the checkpoint of the log in `directory` durably; raises OSError."""
    lines = (f"{entry.epoch} {entry.start_offset}" for entry in cache.entries)
    write_lines(files, f"{directory}/{CHECKPOINT_NAME}", lines)


def read_epochs(files: Files, directory: str) -> LeaderEpochCache:
    """Return the checkpointed cache, empty without a checkpoint; raises CorruptCheckpointError."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    try:
        entries = [EpochEntry(int(epoch), int(start)) for epoch, start in read_lines(files, path)]
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None
    return LeaderEpochCache(entries)
