"""A session with a remote store, which may be silent and lose responses."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.store.embedded import EmbeddedSession
from barnabas.broker.store.metadata_store import (
    Create,
    Op,
    OpResult,
    SetData,
    StoreUnavailable,
    TooLarge,
)


class RemoteSession:
    """An `EmbeddedSession` whose connection tests cut. Times are seconds of the event loop."""

    def __init__(self, session: EmbeddedSession, timeout: float) -> None:
        self._session = session
        self.session_timeout = timeout
        self.cut = False
        self.silence = 0.0
        self.lose_answer: Callable[[Sequence[Op]], bool] = lambda _ops: False
        """Selects transactions that are applied without a response."""

    def silent_for(self) -> float:
        return self.silence

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        self._require_line()
        if sum(len(op.data) for op in ops if isinstance(op, Create | SetData)) > 1_000_000:
            raise TooLarge
        results = await self._session.multi(ops)
        self._require_line()
        if self.lose_answer(ops):
            raise StoreUnavailable
        return results

    async def get(self, path: str) -> Any:
        self._require_line()
        return await self._session.get(path)

    async def exists(self, path: str) -> Any:
        self._require_line()
        return await self._session.exists(path)

    async def children(self, path: str) -> list[str]:
        self._require_line()
        return await self._session.children(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _require_line(self) -> None:
        if self.cut:
            raise StoreUnavailable
