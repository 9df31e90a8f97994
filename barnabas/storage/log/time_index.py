"""The time index `<base offset>.timeindex`: the offset from which records may be as young as a
timestamp.

Kafka's format: entries of 12 bytes, big-endian: int64 greatest timestamp so far, and int32 last
offset of the batch that has it, relative to the base offset.
"""

from struct import Struct

from barnabas.storage.log.sparse_index import SparseIndex

_TIMESTAMP, _OFFSET = 0, 1


class TimeIndex(SparseIndex):
    """Greatest timestamps, in ms, and offsets; timestamps rise, offsets never fall."""

    __slots__ = ()

    ENTRY = Struct(">qi")
    RESERVED = 1
    """Room for the entry that every segment gets when it is closed."""

    @property
    def last_timestamp(self) -> int:
        return -1 if self.last is None else self.last[0]

    @property
    def last_offset(self) -> int:
        return self.base_offset if self.last is None else self.base_offset + self.last[1]

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add the greatest timestamp so far, if it is greater than that of the last entry."""
        last = self.last
        if timestamp >= 0 and (last is None or timestamp > last[0]):
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """Return an offset before which no record is as young as `timestamp`."""
        entry = self._floor(timestamp - 1, _TIMESTAMP)
        return self.base_offset if entry is None else self.base_offset + entry[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at `offset` and after it."""
        self._truncate(offset - self.base_offset, _OFFSET)

    def is_sane(self) -> bool:
        """Return whether the file may be a time index; does not read every entry."""
        if self.found_bytes is None or self.found_bytes % self.ENTRY.size:
            return False
        return self.last is None or self.last[1] >= 0
