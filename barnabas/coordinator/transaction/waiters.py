"""Requests that wait for the markers of the previous transaction, instead of being refused with
CONCURRENT_TRANSACTIONS (KIP-609).

A request is woken when its transactional id is free, and is then decided again from the beginning,
because its producer may have been fenced meanwhile. It is decided once more when its time is over.
A wait is short, because every later response on the same connection waits too. The number of
waiting requests is limited; a request above the limit is refused at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.coordinator.ports import TimerHandle, Timers
from barnabas.coordinator.soon import Soon, spawn, wait
from barnabas.protocol.errors import ErrorCode, KafkaError

A = TypeVar("A")
MAX_WAITERS: Final = 10_000


class _Waiter:
    """One request, from its first refusal to its response."""

    __slots__ = ("expired", "signal", "timer", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.expired = False
        self.signal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.timer: TimerHandle | None = None

    def wake(self) -> None:
        if not self.signal.done():
            self.signal.set_result(None)

    def expire(self) -> None:
        self.expired = True
        self.wake()


class TransactionWaiters:
    """The waiting requests by transactional id, in the order of their arrival."""

    def __init__(self, timers: Timers, wait_ms: Callable[[], int]) -> None:
        """`wait_ms` is the longest time that a response is held back; 0 switches waiting off."""
        self._timers = timers
        self._wait_ms = wait_ms
        self._waiters: dict[str, list[_Waiter]] = {}
        self.count = 0
        self._freed = 0
        """The number of times that an id was free."""

    def wake(self, transactional_id: str) -> None:
        """Wake the requests of a transactional id that is free, or coordinated elsewhere."""
        self._freed += 1
        for waiter in self._waiters.pop(transactional_id, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake every request after a change of leadership: the requests fail with
        NOT_COORDINATOR."""
        for transactional_id in list(self._waiters):
            self.wake(transactional_id)

    def ask(self, transactional_id: str, ask: Callable[[], Soon[A]]) -> Soon[A]:
        """Return the response of `ask`; wait and ask again instead of CONCURRENT_TRANSACTIONS."""
        freed = self._freed
        try:
            answer = ask()
        except KafkaError as error:
            if not self._may_wait(error):
                raise
            waiter = self._enter(transactional_id)
            if self._freed != freed:
                # The request has ended the transaction before, with its markers, in this call.
                waiter.wake()
            return self._wait(waiter, ask)
        if isinstance(answer, asyncio.Future) and self._wait_ms() > 0:
            return spawn(self._see_through(transactional_id, ask, answer))
        return answer

    def _may_wait(self, error: KafkaError) -> bool:
        return (
            error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            and self._wait_ms() > 0
            and self.count < MAX_WAITERS
        )

    async def _see_through(
        self, transactional_id: str, ask: Callable[[], Soon[A]], answer: asyncio.Future[A]
    ) -> A:
        try:
            return await answer
        except KafkaError as error:
            if not self._may_wait(error):
                raise
            waiter = self._enter(transactional_id)
            # The id may have become free while the response was on its way.
            waiter.wake()
            return await self._wait(waiter, ask)

    # Waiters enter and leave outside of tasks: none misses a signal before its task has begun, and
    # one that is cancelled before its task has begun leaves all the same.

    def _enter(self, transactional_id: str) -> _Waiter:
        waiter = _Waiter(transactional_id)
        waiter.timer = self._timers.call_later(self._wait_ms() / 1000, waiter.expire)
        self._waiters.setdefault(transactional_id, []).append(waiter)
        self.count += 1
        return waiter

    def _wait(self, waiter: _Waiter, ask: Callable[[], Soon[A]]) -> asyncio.Future[A]:
        answer = spawn(self._ask_again(waiter, ask))
        answer.add_done_callback(lambda _: self._leave(waiter))
        return answer

    async def _ask_again(self, waiter: _Waiter, ask: Callable[[], Soon[A]]) -> A:
        while True:
            await waiter.signal
            self._enter_again(waiter)
            try:
                return await wait(ask())
            except KafkaError as error:
                if waiter.expired or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise

    def _enter_again(self, waiter: _Waiter) -> None:
        """Register the waiter before it asks: it must not miss a wake-up in between."""
        self._remove(waiter)
        waiter.signal = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(waiter.transactional_id, []).append(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._remove(waiter)
        self.count -= 1

    def _remove(self, waiter: _Waiter) -> None:
        waiters = self._waiters.get(waiter.transactional_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[waiter.transactional_id]
