"""The door through which blocking work leaves the event loop.

Only calls that release the GIL belong here (fsync, unlink, reads that miss the page cache, bulk
codecs): a busy Python thread would starve the loop. Work of one lane runs in order, one at a time.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs blocking work somewhere else than on the loop."""

    def submit(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` after all earlier work of `lane`; the future carries its result or error."""
        ...

    def close(self) -> None:
        """Finish what was submitted and let the threads go."""
        ...


class ThreadOffload:
    """One thread per lane, started when the lane is first used."""

    def __init__(self) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def submit(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        executor = self._lanes.get(lane)
        if executor is None:
            executor = self._lanes[lane] = ThreadPoolExecutor(1, thread_name_prefix=lane)
        return asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        for executor in self._lanes.values():
            executor.shutdown(wait=True)
        self._lanes.clear()


class InlineOffload:
    """Runs the work at once on the loop: for the simulation, where nothing really blocks."""

    def submit(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:  # noqa: ARG002
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing runs behind the loop's back."""
