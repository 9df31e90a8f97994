"""An executor whose work a test runs itself."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.offload import InlineOffload

T = TypeVar("T")


class HeldOffload(InlineOffload):
    """A thread whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def submit(self, queue: str, work: Callable[[], T]) -> "asyncio.Future[T]":  # noqa: ARG002
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append((work, done))
        return done

    async def one(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        await asyncio.sleep(0)
