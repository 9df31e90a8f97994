"""The metadata store of one process: no ZooKeeper, journalled to disk.

One `EmbeddedStore` serves any number of sessions on one event loop. A change is staged on the tree,
written and fsynced off the loop, then installed, told to the watches and answered; changes go one
at a time. Sessions live as long as the process, so the ephemeral nodes in a journal belong to the
dead, and opening the store deletes them.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from barnabas.broker.metadata.journal import Journal
from barnabas.broker.metadata.journal_format import encode_snapshot, encode_transaction
from barnabas.broker.metadata.store import (
    ByTransaction,
    Delete,
    Op,
    OpResult,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.metadata.tree import Staged, Tree
from barnabas.broker.offload import Offload
from barnabas.storage.files import Files

_LANE = "metadata"
_REWRITE_ABOVE = 1 << 20
"""Bytes of journal below which it is not worth replacing."""


class EmbeddedStore:
    """The tree, its journal and its sessions. Built by `open_store`."""

    def __init__(self, journal: Journal, tree: Tree, offload: Offload) -> None:
        self._journal = journal
        self._tree = tree
        self._offload = offload
        self._turn = asyncio.Lock()
        self._commits: set[asyncio.Task[list[OpResult]]] = set()
        self._sessions: dict[int, EmbeddedSession] = {}
        self._failed = False
        # Every opening is a transaction, so no later process can make the same ids.
        self._next_session = tree.zxid + 1 << 16

    def session(self) -> "EmbeddedSession":
        """Begin a session."""
        return EmbeddedSession(self)

    def begin(self, session: "EmbeddedSession") -> int:
        """The id of a session that begins now."""
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
        """Forget a session and delete its ephemeral nodes."""
        if self._sessions.pop(session_id, None) is not None:
            await self.commit(partial(self._stage_end, session_id))

    async def close(self) -> None:
        """End all sessions and release the directory; also after a failure."""
        for session_id in list(self._sessions):
            if not self._failed:
                await self.end(session_id)
        async with self._turn:
            self._failed = True
            await self._offload.submit(_LANE, self._journal.close)

    @property
    def tree(self) -> Tree:
        """For reading only: what is installed is durable."""
        return self._tree

    def alive(self, session_id: int) -> bool:
        return session_id in self._sessions

    async def commit(self, stage: Callable[[], Staged]) -> list[OpResult]:
        """Stage when it is its turn, make durable, install, tell the watches.

        Runs to its end even if the caller is cancelled meanwhile: what is in the journal must also
        be in the tree.
        """
        task = asyncio.create_task(self._commit(stage))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def _commit(self, stage: Callable[[], Staged]) -> list[OpResult]:
        async with self._turn:
            if self._failed:
                raise StoreUnavailable
            staged = stage()
            if staged.ops:
                await self._write(partial(self._journal.append, encode_transaction(staged)))
                self._tree.install(staged)
                self._tell(staged)
                await self._shorten()
            return staged.results

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await self._offload.submit(_LANE, work)
        except OSError as cause:
            # What reached the disk is unknown: only the next start can find out.
            self._failed = True
            raise StoreUnavailable from cause

    async def _shorten(self) -> None:
        if self._journal.size > max(_REWRITE_ABOVE, 4 * self._journal.snapshot_size):
            await self._write(partial(self._journal.rewrite, encode_snapshot(self._tree)))

    def _stage_end(self, session_id: int) -> Staged:
        return self._tree.stage([Delete(path) for path in self._tree.ephemerals(session_id)], 0)

    def _tell(self, staged: Staged) -> None:
        for session in self._sessions.values():
            session.tell(staged)


async def open_store(files: Files, directory: str, offload: Offload) -> EmbeddedStore:
    """Open or create the store in a directory whose parent exists.

    Raises JournalError if the journal is damaged or newer than this code, BlockingIOError if
    another process has it open.
    """
    journal = Journal(files, directory)
    tree = await offload.submit(_LANE, journal.load)
    staged = tree.stage([Delete(path) for path in tree.ephemerals()], 0)
    await offload.submit(_LANE, partial(journal.append, encode_transaction(staged)))
    tree.install(staged)
    return EmbeddedStore(journal, tree, offload)


class EmbeddedSession(ByTransaction):
    """A session with an `EmbeddedStore`; see `MetadataStore`."""

    session_timeout = math.inf

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._id = store.begin(self)
        self._closed = False
        self._data_watches: dict[str, list[_Watching]] = {}
        self._child_watches: dict[str, list[_Watching]] = {}
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

    def watch_data(self, path: str, watch: Watch) -> "_Watching":
        return _Watching(self._data_watches, path, watch)

    def watch_children(self, path: str, watch: Watch) -> "_Watching":
        return _Watching(self._child_watches, path, watch)

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

    def tell(self, staged: Staged) -> None:
        """Call the watches of what a transaction changed."""
        for paths, watches in (
            (staged.changed, self._data_watches),
            (staged.children_changed, self._child_watches),
        ):
            for path in paths:
                self._call(watches, path)

    def expired(self) -> None:
        """Call back those who asked for it: the session is over."""
        for callback in list(self._on_expired):
            callback()

    def _call(self, table: "dict[str, list[_Watching]]", path: str) -> None:
        for watching in table.get(path, ()):
            asyncio.get_running_loop().call_soon(watching.call)

    def _tree(self) -> Tree:
        return self._tree_of(self._id)

    def _tree_of(self, session_id: int) -> Tree:
        if not self._store.alive(session_id):
            raise SessionExpired
        return self._store.tree

    def _stage(self, ops: Sequence[Op], session_id: int) -> Staged:
        return self._tree_of(session_id).stage(ops, session_id)


class _Watching:
    """One watch in a session's table of watches by path."""

    def __init__(self, table: "dict[str, list[_Watching]]", path: str, watch: Watch) -> None:
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
        watching = self._table[self._path]
        watching.remove(self)
        if not watching:
            del self._table[self._path]
