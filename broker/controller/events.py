"""The controller's one queue: whatever changes its state is an event, and events go one by one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.clock import Clock
from barnabas.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


class _Event(NamedTuple):
    work: Callable[[], Awaitable[Any]]
    deadline: float
    done: asyncio.Future[Any]


class EventQueue:
    """Runs asynchronous work in the order of its submission, one piece at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Events that wait for their turn."""
        return self._events.qsize()

    def start(self) -> None:
        self._runner = asyncio.create_task(self._run(), name="controller")

    async def stop(self) -> None:
        """Finish nothing more; those who wait are cancelled."""
        if self._runner is None:
            return
        self._runner.cancel()
        await asyncio.wait([self._runner])
        while not self._events.empty():
            self._events.get_nowait().done.cancel()

    def submit(
        self, work: Callable[[], Awaitable[T]], timeout: float = float("inf")
    ) -> asyncio.Future[T]:
        """The future carries the work's result or error.

        Work whose turn comes later than `timeout` seconds from now is not begun and fails with
        REQUEST_TIMED_OUT. Work that has begun ends even if its future is cancelled.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._events.put_nowait(_Event(work, self._clock.monotonic() + timeout, done))
        return done

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            try:
                if self._clock.monotonic() >= event.deadline:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                result = await event.work()
            except Exception as error:
                if not event.done.cancelled():
                    event.done.set_exception(error)
            except asyncio.CancelledError:
                event.done.cancel()
                raise
            else:
                if not event.done.cancelled():
                    event.done.set_result(result)
