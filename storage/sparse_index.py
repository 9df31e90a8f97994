"""What offset index and time index share: fixed-size entries that rise, in a file beside a segment.

The newest entries wait in memory and reach the file a page at a time, at a flush and at a roll: an
append costs no system call here, and a lost tail is rebuilt from the log. No descriptor is kept,
but the block of entries that was looked at last: readers go on where they were.
"""

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct

from barnabas.storage.files import File, Files

_TAIL_BYTES = 4096
_BLOCK_ENTRIES = 128

Entry = tuple[int, int]


class SparseIndex:
    """Entries of two rising numbers; the subclass gives them their meaning.

    `max_bytes` is segment.index.bytes: an index that is full makes its segment roll.
    """

    __slots__ = (
        "_block",
        "_block_start",
        "_files",
        "_held",
        "_stored",
        "_tail",
        "base_offset",
        "entries",
        "last",
        "max_entries",
        "path",
    )

    ENTRY: Struct
    RESERVED = 0
    """Entries for which there must be room in a full index."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._files = files
        self._held: File | None = None
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size - self.RESERVED
        self._tail = bytearray()
        self._block = b""
        self._block_start = 0
        size = files.size(path) if files.exists(path) else 0
        self._stored = self.entries = size // self.ENTRY.size
        self.last: Entry | None = self._read_last()

    @property
    def size(self) -> int:
        """Bytes of all entries, written or waiting."""
        return self.entries * self.ENTRY.size

    def entry_at(self, number: int, file: File | None = None) -> Entry:
        """The entry of this number, 0 the oldest; `file` spares opening the index again."""
        size = self.ENTRY.size
        if number >= self._stored:
            first, second = self.ENTRY.unpack_from(self._tail, (number - self._stored) * size)
            return first, second
        at = (number - self._block_start) * size
        if not 0 <= at < len(self._block):
            file = file or self._open()
            self._block_start = number - number % _BLOCK_ENTRIES
            self._block = file.read(_BLOCK_ENTRIES * size, self._block_start * size)
            at = (number - self._block_start) * size
        first, second = self.ENTRY.unpack_from(self._block, at)
        return first, second

    def write(self) -> File:
        """Moves waiting entries to the file, and returns it, to be synced."""
        file = self._open(create=True)
        if self._tail:
            file.append(self._tail)
            self._stored = self.entries
            self._tail = bytearray()
        return file

    def hold_open(self) -> None:
        """Opens the file if there is one, so that its name may change beside whoever reads."""
        if self._stored:
            self._held = self._open()

    def let_go(self, path: str) -> None:
        """The file has this name from now on."""
        self._held = None
        self.path = path

    def reset(self) -> None:
        """Forgets all entries, to be rebuilt."""
        self._keep(0)

    def _open(self, *, create: bool = False) -> File:
        return self._held or self._files.open(self.path, create=create)

    def _append(self, first: int, second: int) -> None:
        self._tail += self.ENTRY.pack(first, second)
        self.entries += 1
        self.last = (first, second)
        if len(self._tail) >= _TAIL_BYTES:
            self.write()

    def _floor(self, target: int, key: Callable[[Entry], int]) -> Entry | None:
        """The last entry whose `key` is not greater than `target`."""
        low, high, file = self._block_start, self._block_start, None
        if self._block:
            high += len(self._block) // self.ENTRY.size - 1
        if low == high or not key(self.entry_at(low)) <= target < key(self.entry_at(high)):
            low, high = 0, self.entries
            file = self._open() if self._stored else None
        after = bisect_right(
            range(self.entries),
            target,
            low,
            high,
            key=lambda number: key(self.entry_at(number, file)),
        )
        return self.entry_at(after - 1, file) if after else None

    def _truncate(self, target: int, key: Callable[[Entry], int]) -> None:
        """Drops the entries whose `key` is `target` or greater."""
        if self.last is not None and key(self.last) >= target:
            file = self._open() if self._stored else None
            self._keep(
                bisect_right(
                    range(self.entries),
                    target - 1,
                    key=lambda number: key(self.entry_at(number, file)),
                )
            )

    def _keep(self, entries: int) -> None:
        size = self.ENTRY.size
        self._block = b""
        if entries < self._stored or not entries:
            self._open(create=True).truncate(entries * size)
            self._stored = entries
            self._tail = bytearray()
        else:
            del self._tail[(entries - self._stored) * size :]
        self.entries = entries
        self.last = self._read_last()

    def _read_last(self) -> Entry | None:
        return self.entry_at(self.entries - 1) if self.entries else None
