"""The offset index `<base offset>.index`: positions of batches, one per index.interval.bytes or so.

Kafka's format: entries of 8 bytes, big-endian: int32 last offset of a batch, relative to the base
offset, and int32 position of that batch in the segment file.
"""

from struct import Struct

from barnabas.storage.log.sparse_index import SparseIndex

_OFFSET, _POSITION = 0, 1


class OffsetIndex(SparseIndex):
    """Last offsets of batches and their positions; both rise."""

    __slots__ = ()

    ENTRY = Struct(">ii")

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that ends with `last_offset` and begins at `position`."""
        self._append(last_offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return a position from which a scan over the batches cannot miss `offset`."""
        entry = self._floor(offset - self.base_offset, _OFFSET)
        return 0 if entry is None else entry[1]

    def position_before(self, position: int) -> int:
        """Return the last indexed start of a batch that is not after `position`."""
        entry = self._floor(position, _POSITION)
        return 0 if entry is None else entry[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that reach `offset`."""
        self._truncate(offset - self.base_offset, _OFFSET)

    def is_sane(self, segment_bytes: int) -> bool:
        """Return whether the file may belong to a segment of this size; does not read every
        entry."""
        if self.found_bytes is None or self.found_bytes % self.ENTRY.size:
            return False
        return self.last is None or (self.last[0] >= 0 and 0 <= self.last[1] < segment_bytes)
