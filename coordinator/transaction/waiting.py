"""Waiting for the markers of the transaction before, in place of CONCURRENT_TRANSACTIONS (KIP-609).

Who waits is woken when its transactional id is free, and then asks again from the beginning: the
producer may have been fenced meanwhile. A wait is short, for all that is asked on one connection
waits with it; the number of waiters is capped, and beyond it nobody waits.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.ports import Timers
from barnabas.coordinator.soon import promised
from barnabas.protocol.errors import ErrorCode, KafkaError

MAX_WAITERS: Final = 10_000
Ask = Callable[[], Any]


class WaitingRoom:
    """Those who wait, by transactional id, in the order they came."""

    def __init__(self, timers: Timers, wait_ms: Callable[[], int]) -> None:
        """`wait_ms` is how long an answer may be held back in all; 0 switches waiting off."""
        self._timers = timers
        self._wait_ms = wait_ms
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self.count = 0

    def wake(self, transactional_id: str) -> None:
        """The transactional id is free, or is not coordinated here any more."""
        for waiter in self._waiters.pop(transactional_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        """Leadership has moved: whoever waited asks again, and hears where to."""
        for transactional_id in list(self._waiters):
            self.wake(transactional_id)

    def ask(self, transactional_id: str, ask: Ask) -> Any:
        """What `ask` answers, at once or as a future; CONCURRENT_TRANSACTIONS is waited out."""
        try:
            answer = ask()
        except KafkaError as error:
            if not self._may_wait(error):
                raise
            return promised(self._ask_again(transactional_id, ask, error))
        if isinstance(answer, asyncio.Future) and self._wait_ms() > 0:
            return promised(self._see_through(transactional_id, ask, answer))
        return answer

    def _may_wait(self, error: KafkaError) -> bool:
        return (
            error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            and self._wait_ms() > 0
            and self.count < MAX_WAITERS
        )

    async def _see_through(
        self, transactional_id: str, ask: Ask, answer: asyncio.Future[Any]
    ) -> Any:
        try:
            return await answer
        except KafkaError as error:
            if not self._may_wait(error):
                raise
            return await self._ask_again(transactional_id, ask, error)

    async def _ask_again(self, transactional_id: str, ask: Ask, error: KafkaError) -> Any:
        loop = asyncio.get_running_loop()
        expired = loop.create_future()
        timer = self._timers.call_later(self._wait_ms() / 1000, lambda: _set(expired))
        self.count += 1
        try:
            while not expired.done():
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.setdefault(transactional_id, []).append(waiter)
                try:
                    await asyncio.wait((waiter, expired), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self._leave(transactional_id, waiter)
                if not waiter.done():
                    break
                try:
                    answer = ask()
                    return await answer if isinstance(answer, asyncio.Future) else answer
                except KafkaError as again:
                    if again.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                        raise
                    error = again
            raise error
        finally:
            timer.cancel()
            self.count -= 1

    def _leave(self, transactional_id: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(transactional_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[transactional_id]


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
