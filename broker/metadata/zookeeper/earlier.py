"""Sessions that earlier runs of this broker have begun, kept beside its logs.

A broker that was killed leaves a session that ZooKeeper ends only after its timeout, and a
registration that is in the next run's way until then. With the session's password the next run can
end it at once.
"""

import json
import os
from contextlib import suppress
from functools import partial

from barnabas.broker.metadata.store import SessionExpired
from barnabas.broker.metadata.zookeeper.session import SessionKey, ZooKeeperSession
from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.offload import Offload
from barnabas.storage.files import Files, write_atomic

_NAME = "zookeeper.sessions"
_LANE = "metadata"
_KEPT = 8
"""A broker that dies again and again before it registers leaves several."""
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
        """Read what earlier runs have left; a file that cannot be understood is no loss."""
        self._keys = await self._offload.submit(_LANE, self._read)

    async def keep(self, key: SessionKey) -> None:
        """Remember a session that has begun."""
        self._keys = [*self._keys[1 - _KEPT :], key]
        await self._offload.submit(_LANE, partial(self._write, self._keys))

    async def end(self, session_id: int) -> bool:
        """End a session if it is one of these; says whether it was. Raises StoreUnavailable."""
        key = next((each for each in self._keys if each.session_id == session_id), None)
        if key is None:
            return False
        session = ZooKeeperSession(
            self._settings, on_connected=_nothing, on_over=_nothing, resume=key
        )
        with suppress(SessionExpired):
            await session.begin()
            await session.close()
        _log.info("ended the session that an earlier run had left", session=hex(session_id))
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
    """Nobody has anything in a session that is only taken over to be ended."""
