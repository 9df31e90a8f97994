"""The metadata store on ZooKeeper: one `MetadataStore` over successive sessions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.protocol import serialization as zk

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    UNKNOWN_ZXID,
    Create,
    CreateResult,
    NodeExists,
    NoNode,
    NotAllowed,
    Op,
    OpResult,
    SessionExpired,
    SingleOperations,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.store.zookeeper import wire
from barnabas.broker.store.zookeeper.session import SessionKey, ZooKeeperSession
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.watches import Watches, ZooKeeperWatch

_log = get_logger(__name__)

RECONNECT_WAIT = 2.0
"""Seconds that a request waits for a lost connection to return."""

StoreKey = Callable[[SessionKey], Awaitable[None]]
"""Stores the key of a session for a later process."""


async def discard_key(_key: SessionKey) -> None:
    """Do nothing: for a store whose session no later process needs to end."""


def _nothing() -> None:
    """Do nothing: the session only asks."""


_NOT_OURS = "/zookeeper"
"""The node of ZooKeeper itself."""


class ZooKeeperStore(SingleOperations):
    """See `MetadataStore`. Created by `open_zookeeper`."""

    def __init__(self, settings: Settings, store_key: StoreKey) -> None:
        self._settings = settings
        self._store_key = store_key
        self._watches = Watches(self._send, settings.chroot)
        self._session: ZooKeeperSession | None = None
        self._renewing = asyncio.Lock()
        self._on_expired: list[Callable[[], None]] = []
        self._closed = False
        self._explaining: asyncio.Task[None] | None = None

    # -- sessions ----------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.key.session_id

    @property
    def key(self) -> SessionKey | None:
        """The key of the current or last session."""
        return None if self._session is None else self._session.key

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        return self._session is not None and not self._session.ended

    @property
    def session_timeout(self) -> float:
        session = self._session
        return self._settings.session_timeout if session is None else session.timeout

    def silent_for(self) -> float:
        return 0.0 if self._session is None else self._session.silent_for()

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        async with self._renewing:
            if self._closed:
                raise SessionExpired
            if self._session is not None and not self._session.ended:
                return
            await self._begin()

    async def close(self) -> None:
        self._closed = True
        if self._explaining is not None:
            self._explaining.cancel()
        if self._session is not None:
            await self._session.close()

    async def _begin(self) -> None:
        session = ZooKeeperSession(
            self._settings,
            on_connected=self._watches.rearm_all,
            on_end=lambda: self._session_ended(session),
            on_disconnected=lambda: self._disconnected(session),
        )
        await session.begin()
        try:
            await self._remember(session.key)
            if self._session is None:
                await self._make_chroot(session)
        except BaseException:
            await session.close()
            raise
        if self._closed:
            await session.close()
            raise SessionExpired
        self._session = session
        self._watches.rearm_all()

    async def _remember(self, key: SessionKey) -> None:
        try:
            await self._store_key(key)
        except OSError as error:
            if self._session is None:
                raise
            # A running broker continues, since its other directories may work. A successor that
            # lacks the key waits for the end of the session.
            _log.warning("session key not stored on disk", reason=repr(error))

    def _session_ended(self, session: ZooKeeperSession) -> None:
        if session is self._session and not self._closed:
            for callback in list(self._on_expired):
                callback()

    def _disconnected(self, session: ZooKeeperSession) -> None:
        if session is self._session and (self._explaining is None or self._explaining.done()):
            self._explaining = asyncio.create_task(self._explain(session))

    async def _explain(self, session: ZooKeeperSession) -> None:
        """Log that ZooKeeper has lost data, if that is why a session does not come back.

        A server closes the connection of a client that has seen a newer transaction than its own
        newest one, without a reason. It takes a new session.
        """
        told = ""
        while True:
            await asyncio.sleep(session.timeout)
            if session.connected:
                return
            found = await self._loss(session.newest_seen)
            if found and found != told:
                told = found
                _log.error(found, at=", ".join(self._settings.servers))

    async def _loss(self, newest_seen: int) -> str:
        """Return what ZooKeeper has lost, asked in a separate session; empty if nothing."""
        probe = ZooKeeperSession(self._settings, on_connected=_nothing, on_end=_nothing)
        try:
            await probe.begin()
        except StoreError:
            return ""
        try:
            nodes = await probe.call(zk.GetChildren("/", None), "/")
        except StoreError:
            return ""
        finally:
            await probe.close()
        if f"/{''.join(nodes)}" == _NOT_OURS:
            return "ZooKeeper came back empty: restore its data"
        if probe.newest_seen < newest_seen:
            return "ZooKeeper came back with older data than this broker has seen: restore its data"
        return ""

    async def _make_chroot(self, session: ZooKeeperSession) -> None:
        """Create the path in `zookeeper.connect` if it does not exist, as the first broker does in
        Kafka."""
        path = ""
        for part in self._settings.chroot.split("/")[1:]:
            path += "/" + part
            # Read first: this broker may not be allowed to create the nodes above.
            if await session.call(zk.Exists(path, None), path) is None:
                with suppress(NodeExists):
                    await self._write(session, [Create(path)], chroot="")

    # -- requests ----------------------------------------------------------------------------------

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._read(zk.GetData, path)
        return data, wire.stat_of(stat)

    async def exists(self, path: str) -> Stat | None:
        stat = await self._read(zk.Exists, path)
        return None if stat is None else wire.stat_of(stat)

    async def children(self, path: str) -> list[str]:
        return sorted(await self._read(zk.GetChildren, path))

    async def protect(self, paths: Sequence[str] = ("/",)) -> int:
        """Give all nodes the rights that `zookeeper.set.acl` gives to new ones; return their
        number. Raises StoreError.

        Parents come first, so that no stranger creates a node behind the walk.
        """
        done = 0
        for path in paths:
            session = self._require_session()
            await session.ready(RECONNECT_WAIT)
            rights = wire.acl_of(path, set_acl=True)
            full = wire.full_path(self._settings.chroot, path)
            with suppress(NoNode):
                await session.call(zk.SetACL(full, rights, -1), path)
                done += 1
                own = path.rstrip("/")
                names = [name for name in await self.children(path) if f"{own}/{name}" != _NOT_OURS]
                done += await self.protect([f"{own}/{name}" for name in names])
        return done

    async def open_nodes(self) -> list[str]:
        """Return the nodes of users, tokens and rules whose access rights give the world more than
        `zookeeper.set.acl` gives it. Raises StoreError.

        Their children are not read: in a tree of an earlier configuration all nodes are open.
        """
        found = []
        for path in wire.GUARDED_ROOTS:
            # ZooKeeper shows the rights of a node to those alone who may read it.
            with suppress(NoNode, NotAllowed):
                acl, _ = await self._read(lambda full, _watch: zk.GetACL(full), path)
                if wire.is_open(path, acl):
                    found.append(path)
        return found

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if not ops:
            return []
        return await self._write(self._require_session(), ops, chroot=self._settings.chroot)

    def watch_data(self, path: str, watch: Watch) -> ZooKeeperWatch:
        return self._watches.watch_data(path, watch)

    def watch_children(self, path: str, watch: Watch) -> ZooKeeperWatch:
        return self._watches.watch_children(path, watch)

    async def _write(
        self, session: ZooKeeperSession, ops: Sequence[Op], *, chroot: str
    ) -> list[OpResult]:
        """Send a change once: if the response is lost with the connection, its outcome is
        unknown."""
        set_acl, first = self._settings.set_acl, ops[0]
        if len(ops) == 1 and isinstance(first, Create):
            creation = wire.creation(first, chroot, set_acl=set_acl)
            await session.ready(RECONNECT_WAIT)
            path, stat = await session.call(creation, first.path)
            return [CreateResult(path.removeprefix(chroot), wire.stat_of(stat))]
        request = wire.multi_request(ops, chroot, set_acl=set_acl)
        await session.ready(RECONNECT_WAIT)
        answers = wire.answers_of(await session.call(request, first.path))
        zxid = await self._zxid_of(session, answers, chroot)
        return wire.results_of(ops, answers, zxid, session.key.session_id)

    async def _zxid_of(
        self, session: ZooKeeperSession, answers: Sequence[str | Stat | None], chroot: str
    ) -> int:
        """Return the zxid of a transaction from one of its nodes, because ZooKeeper does not return
        it."""
        for answer in answers:
            if isinstance(answer, Stat):
                return answer.mzxid
        with suppress(StoreError):
            for path in answers:
                if isinstance(path, str):
                    stat = await session.call(zk.Exists(wire.full_path(chroot, path), None), path)
                    if stat is not None:
                        return int(stat.czxid)
        return UNKNOWN_ZXID

    async def _read(self, kind: Any, path: str) -> Any:
        """Send a read, again if the response is lost: it changes no node."""
        session, loop = self._require_session(), asyncio.get_running_loop()
        request = kind(wire.full_path(self._settings.chroot, path), None)
        give_up = loop.time() + RECONNECT_WAIT
        while True:
            await session.ready(max(0.0, give_up - loop.time()))
            try:
                return await session.call(request, path)
            except StoreUnavailable:
                if loop.time() >= give_up:
                    raise

    def _require_session(self) -> ZooKeeperSession:
        if self._session is None or self._session.ended:
            raise SessionExpired
        return self._session

    def _send(self, request: Any, path: str) -> "asyncio.Future[Any] | None":
        session = self._session
        if session is None or session.ended or not session.connected:
            return None
        return session.call(request, path)


async def open_zookeeper(settings: Settings, store_key: StoreKey = discard_key) -> ZooKeeperStore:
    """Open a session. Raises StoreUnavailable, NotAllowed."""
    store = ZooKeeperStore(settings, store_key)
    await store.renew()
    return store
