"""Waiting for the markers of the transaction before, in place of CONCURRENT_TRANSACTIONS (KIP-609).

Who waits is woken when its transactional id is free, and then asks again from the beginning: the
producer may have been fenced meanwhile. Who is not woken in time asks once more, too. A wait is
short, for all that is asked on one connection waits with it; the number of waiters is capped, and
beyond it nobody waits.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.ports import TimerHandle, Timers
from barnabas.coordinator.soon import promised, settled
from barnabas.protocol.errors import ErrorCode, KafkaError

MAX_WAITERS: Final = 10_000
Ask = Callable[[], Any]


class _Place:
    """One who waits, from the moment it is told to until it has its answer."""

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


class WaitingRoom:
    """Those who wait, by transactional id, in the order they came."""

    def __init__(self, timers: Timers, wait_ms: Callable[[], int]) -> None:
        """`wait_ms` is how long an answer may be held back in all; 0 switches waiting off."""
        self._timers = timers
        self._wait_ms = wait_ms
        self._places: dict[str, list[_Place]] = {}
        self.count = 0

    def wake(self, transactional_id: str) -> None:
        """The transactional id is free, or is not coordinated here any more."""
        for place in self._places.pop(transactional_id, ()):
            place.wake()

    def wake_all(self) -> None:
        """Leadership has moved: whoever waited asks again, and hears where to."""
        for transactional_id in list(self._places):
            self.wake(transactional_id)

    def ask(self, transactional_id: str, ask: Ask) -> Any:
        """What `ask` answers, at once or as a future; CONCURRENT_TRANSACTIONS is waited out."""
        try:
            answer = ask()
        except KafkaError as error:
            if not self._may_wait(error):
                raise
            return self._wait(self._enter(transactional_id), ask)
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
            place = self._enter(transactional_id)
            # What it would wait for may have come while the answer was on its way.
            place.wake()
            return await self._wait(place, ask)

    # Places are taken and left outside of tasks: nothing is missed before a task has begun, and
    # one that is cancelled before it has begun leaves all the same.

    def _enter(self, transactional_id: str) -> _Place:
        place = _Place(transactional_id)
        place.timer = self._timers.call_later(self._wait_ms() / 1000, place.expire)
        self._places.setdefault(transactional_id, []).append(place)
        self.count += 1
        return place

    def _wait(self, place: _Place, ask: Ask) -> asyncio.Future[Any]:
        answer = promised(self._ask_again(place, ask))
        answer.add_done_callback(lambda _: self._leave(place))
        return answer

    async def _ask_again(self, place: _Place, ask: Ask) -> Any:
        while True:
            await place.signal
            self._stand_again(place)
            try:
                return await settled(ask())
            except KafkaError as error:
                if place.expired or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise

    def _stand_again(self, place: _Place) -> None:
        """Before it asks: what is told from now on must not be missed."""
        self._remove(place)
        place.signal = asyncio.get_running_loop().create_future()
        self._places.setdefault(place.transactional_id, []).append(place)

    def _leave(self, place: _Place) -> None:
        if place.timer is not None:
            place.timer.cancel()
        self._remove(place)
        self.count -= 1

    def _remove(self, place: _Place) -> None:
        places = self._places.get(place.transactional_id)
        if places is not None and place in places:
            places.remove(place)
            if not places:
                del self._places[place.transactional_id]
