"""The sessions of earlier runs of this broker, stored in its first log directory.

A killed broker leaves a session that ZooKeeper ends only after its timeout; until then its
registration blocks the next run. With the session's password the next run can end it at once.
"""

import json
import os
from contextlib import suppress
from functools import partial

from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import SessionExpired
from barnabas.broker.store.zookeeper.session import SessionKey, ZooKeeperSession
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.storage.files.files import Files, write_atomic

_NAME = "zookeeper.sessions"
_QUEUE = "metadata"
_KEPT = 8
"""Number of sessions to keep: a broker that crashes repeatedly before it registers leaves
several."""
_log = get_logger(__name__)


class EarlierSessions:
    """The file of session ids and passwords in the first log directory."""

    def __init__(self, settings: Settings, files: Files, directory: str, offload: Offload) -> None:
        self._settings = settings
        self._files = files
        self._path = os.path.join(directory, _NAME)
        self._offload = offload
        self._keys: list[SessionKey] = []

    async def load(self) -> None:
        """Read the sessions of earlier runs; an unreadable file is ignored."""
        self._keys = await self._offload.submit(_QUEUE, self._read)

    async def keep(self, key: SessionKey) -> None:
        """Store a session that has begun."""
        self._keys = [*self._keys[1 - _KEPT :], key]
        await self._offload.submit(_QUEUE, partial(self._write, self._keys))

    async def end(self, session_id: int) -> bool:
        """End a session if an earlier run left it; return whether it did. Raises
        StoreUnavailable."""
        key = next((each for each in self._keys if each.session_id == session_id), None)
        if key is None:
            return False
        session = ZooKeeperSession(
            self._settings, on_connected=_nothing, on_end=_nothing, resume=key
        )
        with suppress(SessionExpired):
            await session.begin()
            await session.close()
        _log.info("session of an earlier run ended", session=hex(session_id))
        return True

    def _read(self) -> list[SessionKey]:
        if not self._files.exists(self._path):
            return []
        try:
            sessions = json.loads(self._files.read_bytes(self._path))["sessions"]
            return [SessionKey(int(each["id"]), bytes.fromhex(each["key"])) for each in sessions]
        except (ValueError, KeyError, TypeError):
            return []

    def _write(self, keys: list[SessionKey]) -> None:
        sessions = [{"id": each.session_id, "key": each.password.hex()} for each in keys]
        data = json.dumps({"version": 1, "sessions": sessions}).encode()
        write_atomic(self._files, self._path, data, private=True)


def _nothing() -> None:
    """Do nothing: the session is only resumed to be ended."""
