"""The slicer: it runs long work in slices, so that no request holds the event loop.

Work is a generator of `Steps` (`barnabas/protocol/steps.py`). A task takes its long loops through
`Slicer.each`, which waits for the task's turn between two items.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas.protocol.steps import Future, Steps

T = TypeVar("T")

TURN_S = 0.005
"""The most time for queued work in one iteration of the event loop, and the time for new work."""
SLICE_S = 0.001
"""The time after which new work joins the queue, and a task waits for its next turn."""
QUEUED_S = 0.00025
"""The time after which queued work makes room for the next in the queue, and the least time for it
in one iteration: in a quiet loop a request that comes meanwhile waits for so long. Slices of 1 ms
would end the work a tenth sooner."""
CROWD_S = 0.015
"""The time in one iteration after which connections begin no more requests in it."""


class Paced(Generic[T]):
    """The items of a task's loop. See `Slicer.each`."""

    def __init__(self, slicer: "Slicer", items: Iterable[T]) -> None:
        self._slicer = slicer
        self._items = iter(items)
        self._end = slicer.monotonic() + SLICE_S

    def __aiter__(self) -> "Paced[T]":
        return self

    async def __anext__(self) -> T:
        monotonic = self._slicer.monotonic
        if monotonic() >= self._end:
            await self._slicer.turn()
            self._end = monotonic() + SLICE_S
        for item in self._items:
            return item
        raise StopAsyncIteration


class Work(asyncio.Future[T]):
    """The result of a generator that the slicer runs.

    Cancelling it closes the generator, and cancels the future for which that waits. A task is not
    cancelled: it runs to its end.
    """

    def __init__(self, steps: Steps[T], waits: Callable[[Future], None] | None = None) -> None:
        super().__init__()
        self.steps = steps
        self.waits = waits
        """Called with each future for which the generator waits."""
        self.awaited: Future | None = None
        self.resume: Callable[[Steps[T]], Future | None] = next
        """Continues the generator: `next`, or a function that passes an awaited result to it."""

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.close()
            if self.awaited is not None and not isinstance(self.awaited, asyncio.Task):
                self.awaited.cancel()
        return cancelled

    def close(self) -> None:
        """Close the generator; the slicer closes one that is running, after its step."""
        if inspect.getgeneratorstate(self.steps) != inspect.GEN_RUNNING:
            self.steps.close()


class Slicer:
    """The queue of the long work of one event loop, served round robin."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds. On virtual time, which stands still, work ends at once."""
        self.monotonic = self._now = monotonic
        self._queue: deque[Work[Any] | asyncio.Future[None]] = deque()
        self._left = TURN_S
        """The seconds that new work may still take in this iteration of the event loop."""
        self.crowded = False
        """Whether no more requests should begin in this iteration of the event loop."""
        self._scheduled = False
        self._waits_since = monotonic()
        """The time from which on other work of the loop goes before the next turn."""
        self._worked_at = monotonic()
        """The time of the last turn of queued work."""

    def run(self, steps: Steps[T], waits: Callable[[Future], None] | None = None) -> Work[T]:
        """Run work, at once while the time for new work lasts; short work is done on return.

        Await the result, which is the generator's result or error. `waits` is called with each
        future for which the generator waits.
        """
        work = Work(steps, waits)
        self._begin(work)
        return work

    def each(self, items: Iterable[T]) -> Paced[T]:
        """Iterate over items in a task: `async for item in slicer.each(items)`.

        The task takes a slice at once, and another one each time that its turn comes. The body of
        the loop takes less than a slice.
        """
        return Paced(self, items)

    def turn(self) -> asyncio.Future[None]:
        """Return a future that is done when the calling task may take its next slice."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiting)
        self._schedule()
        return waiting

    def spend(self, seconds: float) -> None:
        """Count the time that requests took which were answered in one go."""
        self._left -= seconds
        self.crowded = self._left < TURN_S - CROWD_S
        self._schedule()

    @property
    def idle_s(self) -> float:
        """The seconds for which there has been no long work."""
        return 0.0 if self._queue else self._now() - self._worked_at

    @property
    def busy(self) -> bool:
        """Whether the time for new work in this iteration of the event loop is used up."""
        return self._left <= 0

    def _begin(self, work: Work[Any]) -> None:
        started = self._now()
        if self._left <= 0 or self._advance(work, started + min(self._left, SLICE_S)):
            self._queue.append(work)
        self.spend(self._now() - started)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled, self._waits_since = True, self._now()
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Serve the queue in one iteration of the event loop, for as long as other work took: in a
        quiet loop a request that comes meanwhile waits for one slice."""
        self._scheduled = self.crowded = False
        self._left = TURN_S
        now = self._now()
        end = now + min(TURN_S, max(QUEUED_S, now - self._waits_since))
        if self._queue:
            self._worked_at = now
        while self._queue and now < end:
            work = self._queue.popleft()
            if not isinstance(work, Work):
                if not work.done():
                    # The task runs right after this turn.
                    work.set_result(None)
                    end -= SLICE_S
            elif self._advance(work, min(now + QUEUED_S, end)):
                self._queue.append(work)
            now = self._now()
        if self._queue:
            self._schedule()

    def _advance(self, work: Work[Any], end: float) -> bool:
        """Take steps until the time `end`; return whether the work is to be queued again."""
        steps, now = work.steps, self._now
        resume, work.resume = work.resume, next
        try:
            while not work.done():
                awaited = resume(steps)
                if awaited is not None:
                    work.awaited = awaited
                    if work.waits is not None:
                        work.waits(awaited)
                    awaited.add_done_callback(partial(self._continue, work))
                    return False
                if now() >= end:
                    return True
                resume = next
            steps.close()
        except StopIteration as stop:
            if not work.done():
                work.set_result(stop.value)
        except asyncio.CancelledError:
            work.cancel()
        except Exception as error:
            if not work.done():
                work.set_exception(error)
        return False

    def _continue(self, work: Work[Any], awaited: Future) -> None:
        """Continue work that has waited for a future."""
        work.awaited = None
        if not work.done():
            work.resume = partial(_pass_result, awaited)
            self._begin(work)


def _pass_result(awaited: Future, steps: Steps[Any]) -> Any:
    try:
        result = awaited.result()
    except BaseException as error:
        return steps.throw(error)
    return steps.send(result)
