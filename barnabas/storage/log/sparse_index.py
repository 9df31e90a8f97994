"""The common part of offset index and time index: fixed-size entries in rising order, in a file
next to a segment.

The newest entries are buffered in memory and written a page at a time, and at a roll: most appends
cost no system call here, and a lost tail is rebuilt from the log. No descriptor is kept open. The
buffer grows while the process is out of descriptors. The last block that was read is kept in
memory: readers continue where they were.
"""

from bisect import bisect_right
from struct import Struct

from barnabas.storage.files.errors import lacks_descriptors
from barnabas.storage.files.files import File, Files, size_of

_TAIL_BYTES = 4096
_BLOCK_ENTRIES = 128

Entry = tuple[int, int]


class SparseIndex:
    """Entries of two rising numbers; the subclass gives them their meaning.

    `max_bytes` is segment.index.bytes: a full index makes its segment roll.
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
        "found_bytes",
        "last",
        "max_entries",
        "path",
    )

    ENTRY: Struct
    RESERVED = 0
    """Entries for which a full index must still have room."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._files = files
        self._held: File | None = None
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size - self.RESERVED
        self._tail = bytearray()
        self._block = b""
        self._block_start = 0
        self.found_bytes = size_of(files, path)
        """The size of the file when the index was opened; None if there was none."""
        self._stored = self.entries = (self.found_bytes or 0) // self.ENTRY.size
        self.last: Entry | None = self._read_last()

    @property
    def size(self) -> int:
        """Return the bytes of all entries, written or buffered."""
        return self.entries * self.ENTRY.size

    def entry_at(self, number: int, file: File | None = None) -> Entry:
        """Return the entry with this number, 0 for the oldest; `file` avoids opening the index
        again."""
        size = self.ENTRY.size
        if number >= self._stored:
            return self._unpack(self._tail, number - self._stored)
        if not 0 <= (number - self._block_start) * size < len(self._block):
            file = file or self._open()
            self._block_start = number - number % _BLOCK_ENTRIES
            self._block = file.read(_BLOCK_ENTRIES * size, self._block_start * size)
        return self._unpack(self._block, number - self._block_start)

    def _unpack(self, entries: bytes | bytearray, number: int) -> Entry:
        first, second = self.ENTRY.unpack_from(entries, number * self.ENTRY.size)
        return first, second

    def create(self) -> None:
        """Create the file if it does not exist; without a descriptor, the first write does."""
        if self.found_bytes is None:
            self._write_if_possible()

    def write(self) -> None:
        """Write buffered entries to the file, which is created if it does not exist."""
        file = self._open(create=True)
        if self._tail:
            file.append(self._tail)
            self._stored = self.entries
            self._tail = bytearray()

    def hold_open(self) -> None:
        """Open the file if it exists, so that a rename does not disturb readers."""
        if self._stored:
            self._held = self._open()

    def let_go(self, path: str) -> None:
        """Note that the file has this name from now on."""
        self._held = None
        self.path = path

    def reset(self) -> None:
        """Drop all entries, before they are rebuilt."""
        self._keep(0)

    def _open(self, *, create: bool = False) -> File:
        return self._held or self._files.open(self.path, create=create)

    def _append(self, first: int, second: int) -> None:
        self._tail += self.ENTRY.pack(first, second)
        self.entries += 1
        self.last = (first, second)
        if len(self._tail) >= _TAIL_BYTES:
            # The batch is in the log already: its append must not fail for this.
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        try:
            self.write()
        except OSError as error:
            if not lacks_descriptors(error):
                raise

    def _floor(self, target: int, column: int) -> Entry | None:
        """Return the last entry whose number in `column` is not greater than `target`."""
        # Searches at the log end, or where a reader was last, need no file access, except for the
        # block that comes next.
        for entries, start in ((self._tail, self._stored), (self._block, self._block_start)):
            count = self._count_up_to(entries, target, column)
            if count:
                found, after = self._unpack(entries, count - 1), start + count
                if after == self.entries or self.entry_at(after)[column] > target:
                    return found
        file = self._open() if self._stored else None
        after = self._search(target, column, file)
        return self.entry_at(after - 1, file) if after else None

    def _count_up_to(self, entries: bytes | bytearray, target: int, column: int) -> int:
        """Return how many of these consecutive entries are not greater than `target`."""
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        if not entries or unpack(entries)[column] > target:
            return 0
        low, high = 1, len(entries) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[column] > target:
                high = middle
            else:
                low = middle + 1
        return low

    def _search(self, target: int, column: int, file: File | None) -> int:
        """Return how many of all entries are not greater than `target`."""
        return bisect_right(
            range(self.entries),
            target,
            key=lambda number: self.entry_at(number, file)[column],
        )

    def _truncate(self, target: int, column: int) -> None:
        """Drop the entries whose number in `column` is `target` or greater."""
        if self.last is not None and self.last[column] >= target:
            file = self._open() if self._stored else None
            self._keep(self._search(target - 1, column, file))

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
