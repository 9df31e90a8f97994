"""The executor of blocking work outside the event loop.

Only calls that release the GIL belong here (fsync, unlink, reads that miss the page cache, bulk
codecs): a busy Python thread would starve the loop. Assignors are the exception: the process of a
broker lets the loop have the GIL back soon (`SWITCH_S` in barnabas/cli/processes/broker.py). The
work of one queue runs in order, one item at a time.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """An executor of blocking work."""

    def submit(self, queue: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` after all earlier work of `queue`; the future has its result or error."""
        ...

    def close(self) -> None:
        """Finish the submitted work and end the threads."""
        ...


class ThreadOffload:
    """An executor with one thread per queue, started at the first use of the queue."""

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def submit(self, queue: str, work: Callable[[], T]) -> asyncio.Future[T]:
        executor = self._threads.get(queue)
        if executor is None:
            executor = self._threads[queue] = ThreadPoolExecutor(1, thread_name_prefix=queue)
        return asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        for executor in self._threads.values():
            executor.shutdown(wait=True)
        self._threads.clear()


class InlineOffload:
    """An executor that runs work at once on the loop, for simulations, where no call blocks."""

    def submit(self, queue: str, work: Callable[[], T]) -> asyncio.Future[T]:  # noqa: ARG002
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing: no work runs outside the loop."""
