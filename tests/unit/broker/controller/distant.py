"""A session with a store that is elsewhere: it may be silent, and lose its answers."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.metadata.embedded import EmbeddedSession
from barnabas.broker.metadata.store import (
    Create,
    Op,
    OpResult,
    SetData,
    StoreUnavailable,
    TooLarge,
)


class DistantSession:
    """An `EmbeddedSession` behind a line that tests cut. Times are seconds of the event loop."""

    def __init__(self, session: EmbeddedSession, timeout: float) -> None:
        self._session = session
        self.session_timeout = timeout
        self.cut = False
        self.silence = 0.0
        self.lose_answer: Callable[[Sequence[Op]], bool] = lambda _ops: False
        """Of which transactions only the deed is done."""

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
