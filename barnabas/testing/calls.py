"""Calls that run on the event loop of the brokers, in a blocking form and in an awaited one."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Late = str | Callable[[], str]
"""The text of a TimeoutError, to which the seconds are added; or a function that returns it."""
TIMEOUT = 30.0
"""Seconds that a method may take. Those of a start are an argument, `start_timeout`."""
_CLEAN_UP_TIMEOUT = 15.0
"""Seconds that work may take to undo what it began, once its own time is over."""


class Calls:
    """An object whose methods run work on the event loop of the brokers, in another thread."""

    def _loop_of_brokers(self) -> asyncio.AbstractEventLoop:
        """Return the loop. Raises RuntimeError if the brokers do not run."""
        raise NotImplementedError

    def _do(
        self, work: Coroutine[Any, Any, T], timeout: float | None = None, late: "Late" = ""
    ) -> T:
        """Run work that takes milliseconds and needs no client; a running event loop may wait."""
        return run_on(self._submittable(work), work, timeout, late)

    def _wait(
        self,
        work: Coroutine[Any, Any, T],
        timeout: float | None = None,
        late: "Late" = "",
        call: str = "",
    ) -> T:
        """Run work that may wait. Raises RuntimeError at once on a running event loop."""
        call = call or f"{_name(work)}()"
        try:
            refuse_running_loop(call, f"await {type(self).__name__.lower()}.aio.{call}")
        except RuntimeError:
            work.close()
            raise
        return self._do(work, timeout, late)

    async def _awaited(
        self, work: Coroutine[Any, Any, T], timeout: float | None = None, late: "Late" = ""
    ) -> T:
        """Run work, and let the running event loop continue meanwhile."""
        loop = self._submittable(work)
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_within(timeout, work, late), loop)
        )

    def _submittable(self, work: Coroutine[Any, Any, T]) -> asyncio.AbstractEventLoop:
        try:
            return self._loop_of_brokers()
        except RuntimeError:
            work.close()
            raise


def run_on(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    timeout: float | None = None,
    late: "Late" = "",
) -> T:
    """Run work on the loop of another thread, and return its result.

    Raises the error of the work, and TimeoutError with the text `late` after `timeout` seconds: the
    work is cancelled then, and has cleaned up.
    """
    future = asyncio.run_coroutine_threadsafe(_within(timeout, work, late), loop)
    try:
        return future.result((TIMEOUT if timeout is None else timeout) + _CLEAN_UP_TIMEOUT)
    except BaseException as error:
        if future.cancel() and isinstance(error, TimeoutError):
            # The loop is busy, and has not noticed that the time is over.
            raise _too_late(timeout, work, late) from None
        raise


async def in_thread(start: Callable[[], object], undo: Callable[[], object]) -> None:
    """Run a start that blocks in a thread; if the caller is cancelled, undo it when it is done."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait((starting,))
        if not starting.cancelled() and starting.exception() is None:
            await asyncio.to_thread(undo)
        raise


def refuse_running_loop(call: str, instead: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread: its clients would stop."""
    if on_running_loop():
        raise RuntimeError(
            f"{call} would stop the event loop that runs in this thread, and its clients: "
            f"use `{instead}`"
        )


def warn_on_running_loop(name: str, stacklevel: int) -> None:
    """Warn that a start blocks the running event loop, if there is one."""
    if on_running_loop():
        warnings.warn(
            f"{name} blocks the event loop of this thread while it starts and stops: "
            f"use `async with {name}(...)`",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def on_running_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def checked_timeout(seconds: float) -> float:
    """Return the limit of a start. Raises ValueError if it is not a positive number of seconds."""
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(f"start_timeout: {seconds!r} is not a positive number of seconds")
    return seconds


async def _within(timeout: float | None, work: Coroutine[Any, Any, T], late: "Late") -> T:
    try:
        async with asyncio.timeout(TIMEOUT if timeout is None else timeout) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise _too_late(timeout, work, late) from error


def _too_late(timeout: float | None, work: Coroutine[Any, Any, Any], late: "Late") -> TimeoutError:
    what = (late() if callable(late) else late) or f"{_name(work)} did not end"
    return TimeoutError(f"{what} within {TIMEOUT if timeout is None else timeout:g} s")


def _name(work: Coroutine[Any, Any, Any]) -> str:
    """Return the name of the public method whose work this is."""
    return str(getattr(work, "__name__", "this call")).strip("_")
