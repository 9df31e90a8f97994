"""The `.txnindex` of a segment: transactions that were aborted in it (KIP-98).

    2 bytes version 0 | producer id | first offset | last offset | last stable offset   (34 bytes)

all big-endian, in the order of their markers. The file is created with the first aborted
transaction of its segment; most segments have none.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from barnabas.storage.files.errors import lacks_descriptors
from barnabas.storage.files.files import File, Files
from barnabas.storage.producers.entry import AbortedTxn

_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


class CorruptTxnIndexError(Exception):
    """The file has other content than entries of its segment; it is rebuilt from the log."""


def encode(txn: AbortedTxn) -> bytes:
    return _ENTRY.pack(_VERSION, *txn)


def decode(data: bytes, *, base_offset: int = 0) -> list[AbortedTxn]:
    """Return the entries of a segment's index; raises CorruptTxnIndexError."""
    return list(map(AbortedTxn._make, _entries(data, base_offset)))


def search(
    data: bytes, fetch_offset: int, upper_bound: int, *, base_offset: int = 0
) -> tuple[list[AbortedTxn], bool]:
    """Return the transactions among encoded ones that overlap [fetch_offset, upper_bound), and
    whether no later one can.

    Once the last stable offset stored with an entry reaches the upper bound, transactions that end
    later also began later. An index may have very many entries: only those that overlap become
    objects. Raises CorruptTxnIndexError.
    """
    found = []
    for entry in _entries(data, base_offset):
        _, first_offset, last_offset, last_stable_offset = entry
        if last_offset >= fetch_offset and first_offset < upper_bound:
            found.append(AbortedTxn(*entry))
        if last_stable_offset >= upper_bound:
            return found, True
    return found, False


def _entries(data: bytes, base_offset: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of each `AbortedTxn`; raises CorruptTxnIndexError."""
    if len(data) % ENTRY_SIZE:
        raise CorruptTxnIndexError(f"{len(data)} bytes: not a multiple of {ENTRY_SIZE}")
    for version, producer_id, first, last, last_stable in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptTxnIndexError(f"unknown version {version}")
        if last < base_offset or first > last:
            txn = AbortedTxn(producer_id, first, last, last_stable)
            raise CorruptTxnIndexError(f"{txn} does not belong to the segment at {base_offset}")
        yield producer_id, first, last, last_stable


class TxnIndexFile:
    """The aborted transactions whose markers are in one segment, in the order of the markers."""

    __slots__ = ("_base_offset", "_files", "_held", "_is_missing", "_unwritten", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self._base_offset = base_offset
        self._held: File | None = None
        # Cached, because every read asks and few segments have the file.
        self._is_missing = False
        self._unwritten = b""

    @property
    def exists(self) -> bool:
        """Return whether the file exists, or has entries that are not written yet."""
        return self._held is not None or bool(self._unwritten) or self._files.exists(self.path)

    def hold_open(self) -> None:
        """Open the file if it exists, so that a rename does not disturb readers."""
        if self.exists:
            self._held = self._files.open(self.path)

    def let_go(self, path: str) -> None:
        """Note that the file has this name from now on."""
        self._held = None
        self.path = path

    def append(self, aborted: Sequence[AbortedTxn]) -> None:
        """Add transactions; without a free descriptor they are written later, by `write`."""
        self._is_missing = False
        self._unwritten += b"".join(map(encode, aborted))
        try:
            self.write()
        except OSError as error:
            # The marker is in the log already: its append must not fail for this.
            if not lacks_descriptors(error):
                raise

    def write(self) -> None:
        """Write the entries that are not in the file yet."""
        if self._unwritten:
            file = self._files.open(self.path, create=True)
            unwritten, self._unwritten = self._unwritten, b""
            file.append(unwritten)

    def read(self) -> list[AbortedTxn]:
        """Return the transactions; raises CorruptTxnIndexError."""
        return decode(self.read_encoded(), base_offset=self._base_offset)

    def search(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Return what `search` finds in the file."""
        data = self.read_encoded()
        return search(data, fetch_offset, upper_bound, base_offset=self._base_offset)

    def read_encoded(self) -> bytes:
        """Return the transactions as they are in the file, to be decoded piece by piece."""
        if self._is_missing:
            return b""
        if not self.exists:
            self._is_missing = True
            return b""
        self.write()
        file = self._held or self._files.open(self.path)
        return file.read(file.size(), 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers are at `offset` or later."""
        if self.exists:
            kept = [txn for txn in self.read() if txn.last_offset < offset]
            self._files.open(self.path).truncate(len(kept) * ENTRY_SIZE)

    def reset(self) -> None:
        """Drop all entries, before they are rebuilt."""
        self._unwritten = b""
        if self.exists:
            self._files.open(self.path).truncate(0)
