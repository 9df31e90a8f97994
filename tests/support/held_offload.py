"""An executor whose work a test runs itself."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.loop.offload import InlineOffload

T = TypeVar("T")


class HeldOffload(InlineOffload):
    """A thread whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.queues: list[str] = []
        """The queue of each."""

    def submit(self, queue: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append((work, done))
        self.queues.append(queue)
        return done

    async def one(self, queue: str | None = None) -> None:
        """Do the first work, or the first of a queue."""
        at = 0 if queue is None else self.queues.index(queue)
        del self.queues[at]
        work, done = self.waiting.pop(at)
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        await asyncio.sleep(0)
