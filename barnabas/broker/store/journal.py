"""The file of the embedded store: one journal, which is replaced as a whole when it has grown.

It is synchronous; the store runs its calls outside the loop. After an OSError the journal must not
be used again: only the next `load` can tell what is on disk.
"""

import os
import struct

from barnabas.broker.store import journal_format
from barnabas.broker.store.journal_format import JournalError
from barnabas.broker.store.metadata_store import StoreError
from barnabas.broker.store.tree import Tree
from barnabas.storage.files.files import File, Files, Lock, make_dirs, write_atomic

_NAME = "metadata.journal"
_LOCK = "metadata.lock"


class Journal:
    """The journal in one directory; `load` creates and locks it."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, _NAME)
        self._file: File | None = None
        self._lock: Lock | None = None
        self.size = 0
        """Bytes of the whole journal."""
        self.snapshot_size = 0
        """Bytes of its header and first snapshot."""

    def load(self) -> Tree:
        """Return the tree after the last durable transaction; a torn one at the end is cut off.

        Raises JournalError for a damaged or newer journal, BlockingIOError if it is in use.
        """
        make_dirs(self._files, self._directory)
        self._lock = self._files.lock(os.path.join(self._directory, _LOCK))
        try:
            tree = Tree()
            if not self._files.exists(self._path):
                self.rewrite(journal_format.encode_snapshot(tree))
            else:
                self._replay(tree)
        except BaseException:
            self.close()
            raise
        return tree

    def append(self, frame: bytes) -> None:
        """Append a transaction; return when it is durable."""
        assert self._file is not None
        self._file.append(frame)
        self._file.sync()
        self.size += len(frame)

    def rewrite(self, snapshot: bytes) -> None:
        """Replace the journal by one that has only the snapshot."""
        data = journal_format.encode_header() + snapshot
        write_atomic(self._files, self._path, data)
        self._file = self._files.open(self._path)
        self.size = self.snapshot_size = len(data)

    def close(self) -> None:
        """Close the file and release the directory. Idempotent."""
        self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _replay(self, tree: Tree) -> None:
        try:
            self._read(tree)
        except JournalError as error:
            raise JournalError(f"{self._path}: {error}") from error

    def _read(self, tree: Tree) -> None:
        data = self._files.read_bytes(self._path)
        end = journal_format.check_header(data)
        frames = journal_format.frames(data, end)
        first = next(frames, None)
        if first is None:
            raise JournalError("the metadata journal has no readable snapshot")
        payload, end = first
        self.snapshot_size = end
        try:
            journal_format.decode_snapshot(payload, tree)
            for payload, position in frames:
                self._apply(tree, payload)
                end = position
        except (struct.error, UnicodeDecodeError, StoreError, IndexError) as cause:
            # The checksums match, so this is not a torn write but a journal of an unknown format.
            raise JournalError(f"the metadata journal cannot be replayed: {cause!r}") from cause
        self._file = self._files.open(self._path)
        if end < len(data):
            self._file.truncate(end)
            self._file.sync()
        self.size = end

    def _apply(self, tree: Tree, payload: memoryview) -> None:
        transaction = journal_format.decode_transaction(payload)
        staged = tree.stage(transaction.ops, transaction.owner)
        if staged.zxid != transaction.zxid:
            raise JournalError(
                f"the metadata journal misses transactions between {tree.zxid} and "
                f"{transaction.zxid}"
            )
        tree.install(staged)
