"""The `.txnindex` file of one segment, made when its first transaction is aborted."""

from collections.abc import Sequence

from barnabas.storage.files import File, Files
from barnabas.storage.txn_index import ENTRY_SIZE, AbortedTxn, decode, encode


class TxnIndexFile:
    """Aborted transactions whose markers are in a segment, in the order of the markers."""

    __slots__ = ("_base_offset", "_files", "_held", "_is_missing", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self._base_offset = base_offset
        self._held: File | None = None
        # Every read asks, and hardly a segment has the file.
        self._is_missing = False

    @property
    def exists(self) -> bool:
        return self._held is not None or self._files.exists(self.path)

    def hold_open(self) -> None:
        """Opens the file if there is one, so that its name may change beside whoever reads."""
        if self.exists:
            self._held = self._files.open(self.path)

    def let_go(self, path: str) -> None:
        """The file has this name from now on."""
        self._held = None
        self.path = path

    def append(self, aborted: Sequence[AbortedTxn]) -> None:
        self._is_missing = False
        self._files.open(self.path, create=True).append(b"".join(map(encode, aborted)))

    def read(self) -> list[AbortedTxn]:
        """Raises CorruptTxnIndexError."""
        if self._is_missing:
            return []
        if not self.exists:
            self._is_missing = True
            return []
        file = self._held or self._files.open(self.path)
        return decode(file.read(file.size(), 0), base_offset=self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose markers are at `offset` or later."""
        if self.exists:
            kept = [txn for txn in self.read() if txn.last_offset < offset]
            self._files.open(self.path).truncate(len(kept) * ENTRY_SIZE)

    def reset(self) -> None:
        """Forgets all, to be rebuilt."""
        if self.exists:
            self._files.open(self.path).truncate(0)
