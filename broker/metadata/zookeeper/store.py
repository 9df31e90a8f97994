"""The metadata store on ZooKeeper: one `MetadataStore` over as many sessions as it takes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.protocol import serialization as zk

from barnabas.broker.metadata.store import (
    UNKNOWN_ZXID,
    ByTransaction,
    Create,
    Created,
    NodeExists,
    Op,
    OpResult,
    SessionExpired,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.metadata.zookeeper import wire
from barnabas.broker.metadata.zookeeper.session import SessionKey, ZooKeeperSession
from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.watches import Watches, Watching
from barnabas.broker.observability.logging import get_logger

_log = get_logger(__name__)

PATIENCE = 2.0
"""Seconds that a request waits for a connection that was lost to come back."""

Keep = Callable[[SessionKey], Awaitable[None]]
"""Remembers a session that has begun, for a process that comes after this one."""


async def forget(_key: SessionKey) -> None:
    """For a store that leaves nothing which a later process would want back."""


class ZooKeeperStore(ByTransaction):
    """See `MetadataStore`. Built by `open_zookeeper`."""

    def __init__(self, settings: Settings, keep: Keep) -> None:
        self._settings = settings
        self._keep = keep
        self._watches = Watches(self._send, settings.chroot)
        self._session: ZooKeeperSession | None = None
        self._renewing = asyncio.Lock()
        self._on_expired: list[Callable[[], None]] = []
        self._closed = False

    # -- sessions ----------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.key.session_id

    @property
    def key(self) -> SessionKey | None:
        """Of the session that lives or lived last."""
        return None if self._session is None else self._session.key

    @property
    def living(self) -> bool:
        """Whether there is a session."""
        return self._session is not None and not self._session.over

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
            if self._session is not None and not self._session.over:
                return
            await self._begin()

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _begin(self) -> None:
        session = ZooKeeperSession(
            self._settings,
            on_connected=self._watches.begin_anew,
            on_over=lambda: self._over(session),
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
        self._watches.begin_anew()

    async def _remember(self, key: SessionKey) -> None:
        try:
            await self._keep(key)
        except OSError as error:
            if self._session is None:
                raise
            # A broker that runs goes on: its other directories may be sound. A successor that does
            # not find the session waits for its end.
            _log.warning("session not remembered on disk", reason=repr(error))

    def _over(self, session: ZooKeeperSession) -> None:
        if session is self._session and not self._closed:
            for callback in list(self._on_expired):
                callback()

    async def _make_chroot(self, session: ZooKeeperSession) -> None:
        """The path in `zookeeper.connect` need not exist: as in Kafka the first broker makes it."""
        path = ""
        for part in self._settings.chroot.split("/")[1:]:
            path += "/" + part
            # Looked at first: what is above may be for others to create in.
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

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if not ops:
            return []
        return await self._write(self._living(), ops, chroot=self._settings.chroot)

    def watch_data(self, path: str, watch: Watch) -> Watching:
        return self._watches.watch_data(path, watch)

    def watch_children(self, path: str, watch: Watch) -> Watching:
        return self._watches.watch_children(path, watch)

    async def _write(
        self, session: ZooKeeperSession, ops: Sequence[Op], *, chroot: str
    ) -> list[OpResult]:
        """Sent once: where the answer is lost with the connection, nobody knows."""
        set_acl, first = self._settings.set_acl, ops[0]
        if len(ops) == 1 and isinstance(first, Create):
            creation = wire.creation(first, chroot, set_acl=set_acl)
            await session.ready(PATIENCE)
            path, stat = await session.call(creation, first.path)
            return [Created(path.removeprefix(chroot), wire.stat_of(stat))]
        request = wire.transaction(ops, chroot, set_acl=set_acl)
        await session.ready(PATIENCE)
        answers = wire.answers_of(await session.call(request, first.path))
        zxid = await self._zxid_of(session, answers, chroot)
        return wire.results_of(ops, answers, zxid, session.key.session_id)

    async def _zxid_of(
        self, session: ZooKeeperSession, answers: Sequence[str | Stat | None], chroot: str
    ) -> int:
        """Of a transaction, from what it has left behind. ZooKeeper does not tell."""
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
        """Asked again where the answer is lost: reading changes nothing."""
        session, loop = self._living(), asyncio.get_running_loop()
        request = kind(wire.full_path(self._settings.chroot, path), None)
        give_up = loop.time() + PATIENCE
        while True:
            await session.ready(max(0.0, give_up - loop.time()))
            try:
                return await session.call(request, path)
            except StoreUnavailable:
                if loop.time() >= give_up:
                    raise

    def _living(self) -> ZooKeeperSession:
        if self._session is None or self._session.over:
            raise SessionExpired
        return self._session

    def _send(self, request: Any, path: str) -> "asyncio.Future[Any] | None":
        session = self._session
        if session is None or session.over or not session.connected:
            return None
        return session.call(request, path)


async def open_zookeeper(settings: Settings, keep: Keep = forget) -> ZooKeeperStore:
    """Begin a session. Raises StoreUnavailable, NotAllowed."""
    store = ZooKeeperStore(settings, keep)
    await store.renew()
    return store
