"""The embedded metadata store: a tree in one process with a journal on disk, without ZooKeeper.

One `EmbeddedStore` has any number of sessions on one event loop. A change is staged on the tree,
written and fsynced outside the loop, then installed, and the watches and the caller are notified;
changes run one at a time. Sessions end with the process, so all ephemeral nodes in a journal are
obsolete, and opening the store deletes them.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from barnabas.broker.loop.offload import Offload
from barnabas.broker.store.journal import Journal
from barnabas.broker.store.journal_format import encode_snapshot, encode_transaction
from barnabas.broker.store.metadata_store import (
    Delete,
    Op,
    OpResult,
    SessionExpired,
    SingleOperations,
    Stat,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.store.tree import StagedTransaction, Tree
from barnabas.storage.files.files import Files

_QUEUE = "metadata"
_REWRITE_ABOVE = 1 << 20
"""Bytes of journal below which a rewrite is not worth its cost."""


class EmbeddedStore:
    """The tree, its journal and its sessions. Created by `open_store`."""

    def __init__(self, journal: Journal, tree: Tree, offload: Offload) -> None:
        self._journal = journal
        self._tree = tree
        self._offload = offload
        self._turn = asyncio.Lock()
        self._commits: set[asyncio.Task[list[OpResult]]] = set()
        self._sessions: dict[int, EmbeddedSession] = {}
        self._failed = False
        # Each opening is a transaction, so no later process can create the same session ids.
        self._next_session = tree.zxid + 1 << 16

    def session(self) -> "EmbeddedSession":
        """Open a session."""
        return EmbeddedSession(self)

    def begin(self, session: "EmbeddedSession") -> int:
        """Return the id of a new session."""
        session_id = self._next_session
        self._next_session += 1
        self._sessions[session_id] = session
        return session_id

    async def expire(self, session_id: int) -> None:
        """End a session as if its owner had been silent for too long."""
        session = self._sessions[session_id]
        await self.end(session_id)
        session.expired()

    async def end(self, session_id: int) -> None:
        """Remove a session and delete its ephemeral nodes."""
        if self._sessions.pop(session_id, None) is not None:
            await self.commit(partial(self._stage_end, session_id))

    async def close(self) -> None:
        """End all sessions and release the directory; also after a failure."""
        for session_id in list(self._sessions):
            if not self._failed:
                await self.end(session_id)
        async with self._turn:
            self._failed = True
            await self._offload.submit(_QUEUE, self._journal.close)

    @property
    def tree(self) -> Tree:
        """The tree, for reading only: installed changes are durable."""
        return self._tree

    def alive(self, session_id: int) -> bool:
        return session_id in self._sessions

    async def commit(self, stage: Callable[[], StagedTransaction]) -> list[OpResult]:
        """Stage a change in its turn, make it durable, install it, and call the watches.

        It completes even if the caller is cancelled: what is in the journal must be in the tree.
        """
        task = asyncio.create_task(self._commit(stage))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def _commit(self, stage: Callable[[], StagedTransaction]) -> list[OpResult]:
        async with self._turn:
            if self._failed:
                raise StoreUnavailable
            staged = stage()
            if staged.ops:
                await self._write(partial(self._journal.append, encode_transaction(staged)))
                self._tree.install(staged)
                self._notify(staged)
                await self._shorten()
            return staged.results

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await self._offload.submit(_QUEUE, work)
        except OSError as cause:
            # The state on disk is unknown until the next start reads it.
            self._failed = True
            raise StoreUnavailable from cause

    async def _shorten(self) -> None:
        if self._journal.size > max(_REWRITE_ABOVE, 4 * self._journal.snapshot_size):
            # In the thread: a large tree takes long to encode, and only this task changes it.
            await self._write(lambda: self._journal.rewrite(encode_snapshot(self._tree)))

    def _stage_end(self, session_id: int) -> StagedTransaction:
        return self._tree.stage([Delete(path) for path in self._tree.ephemerals(session_id)], 0)

    def _notify(self, staged: StagedTransaction) -> None:
        for session in self._sessions.values():
            session.notify(staged)


async def open_store(files: Files, directory: str, offload: Offload) -> EmbeddedStore:
    """Open or create the store in a directory whose parent exists.

    Raises JournalError if the journal is damaged or newer than this code, BlockingIOError if
    another process has it open.
    """
    journal = Journal(files, directory)
    try:
        tree = await offload.submit(_QUEUE, journal.load)
        staged = tree.stage([Delete(path) for path in tree.ephemerals()], 0)
        await offload.submit(_QUEUE, partial(journal.append, encode_transaction(staged)))
    except BaseException:
        # If the caller was cancelled, the thread may still load, and lock the directory.
        await offload.submit(_QUEUE, journal.close)
        raise
    tree.install(staged)
    return EmbeddedStore(journal, tree, offload)


class EmbeddedSession(SingleOperations):
    """A session with an `EmbeddedStore`; see `MetadataStore`."""

    session_timeout = math.inf

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._id = store.begin(self)
        self._closed = False
        self._data_watches: dict[str, list[_WatchHandle]] = {}
        self._child_watches: dict[str, list[_WatchHandle]] = {}
        self._on_expired: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return self._id

    def silent_for(self) -> float:
        return 0.0

    async def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._tree().node(path)
        return node.data, node.stat

    async def exists(self, path: str) -> Stat | None:
        node = self._tree().find(path)
        return None if node is None else node.stat

    async def children(self, path: str) -> list[str]:
        return self._tree().children(path)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        self._tree()
        return await self._store.commit(partial(self._stage, ops, self._id))

    def watch_data(self, path: str, watch: Watch) -> "_WatchHandle":
        return _WatchHandle(self._data_watches, path, watch)

    def watch_children(self, path: str, watch: Watch) -> "_WatchHandle":
        return _WatchHandle(self._child_watches, path, watch)

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        if self._closed:
            raise SessionExpired
        if self._store.alive(self._id):
            return
        self._id = self._store.begin(self)
        for table in (self._data_watches, self._child_watches):
            for path in table:
                self._call(table, path)

    async def close(self) -> None:
        self._closed = True
        await self._store.end(self._id)

    def notify(self, staged: StagedTransaction) -> None:
        """Call the watches of the nodes that a transaction changed."""
        for paths, watches in (
            (staged.changed, self._data_watches),
            (staged.children_changed, self._child_watches),
        ):
            for path in paths:
                self._call(watches, path)

    def expired(self) -> None:
        """Call the callbacks for the end of the session."""
        for callback in list(self._on_expired):
            callback()

    def _call(self, table: "dict[str, list[_WatchHandle]]", path: str) -> None:
        for handle in table.get(path, ()):
            asyncio.get_running_loop().call_soon(handle.call)

    def _tree(self) -> Tree:
        return self._tree_of(self._id)

    def _tree_of(self, session_id: int) -> Tree:
        if not self._store.alive(session_id):
            raise SessionExpired
        return self._store.tree

    def _stage(self, ops: Sequence[Op], session_id: int) -> StagedTransaction:
        return self._tree_of(session_id).stage(ops, session_id)


class _WatchHandle:
    """One watch in a session's table of watches by path."""

    def __init__(self, table: "dict[str, list[_WatchHandle]]", path: str, watch: Watch) -> None:
        self._table = table
        self._path = path
        self._watch: Watch | None = watch
        table.setdefault(path, []).append(self)

    def call(self) -> None:
        if self._watch is not None:
            self._watch(self._path)

    def cancel(self) -> None:
        if self._watch is None:
            return
        self._watch = None
        handle = self._table[self._path]
        handle.remove(self)
        if not handle:
            del self._table[self._path]
