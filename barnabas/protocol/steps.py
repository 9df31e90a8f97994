"""Work in steps: a generator, which the slicer of a broker runs so that it holds no event loop."""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, Protocol, TypeVar

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Future(Protocol):
    """The part of an `asyncio.Future` that steps wait for: this floor has no event loop."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...

    def cancel(self) -> bool: ...

    def result(self) -> Any: ...


Steps = Generator[Future | None, Any, T]
"""Work that may be long. It yields None where it may be interrupted, at least once in a
millisecond, and returns its result. It may also yield a future, and continues with the future's
result or error."""


def in_steps(make: Callable[[T], R], items: Iterable[T]) -> Steps[list[R]]:
    """Return the result of `make` for each item, each in a separate step."""
    made = []
    for item in items:
        made.append(make(item))
        yield None
    return made


def counted(keys: Iterable[K]) -> Steps[Counter[K]]:
    """Return how often each key occurs."""
    counts: Counter[K] = Counter()
    for key in keys:
        counts[key] += 1
        yield None
    return counts


def unseen(keys: Iterable[K], seen: set[K]) -> Steps[list[K]]:
    """Return the keys that are not in `seen`, each once, and add them to it."""
    found = []
    for key in keys:
        if key not in seen:
            seen.add(key)
            found.append(key)
        yield None
    return found


def at_once(steps: Steps[T]) -> T:
    """Return the result of short work that waits for nothing."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def promptly(steps: Steps[T]) -> T | Steps[T]:
    """Return the result of short work, or the rest of it from the first future on."""
    while True:
        try:
            awaited = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if awaited is not None:
            return _from(awaited, steps)


def _from(awaited: Future, steps: Steps[T]) -> Steps[T]:
    """Continue steps that have yielded a future."""
    while True:
        try:
            given = yield awaited
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            proceed: Callable[[Any], Any] = steps.throw
            given = error
        else:
            proceed = steps.send
        try:
            awaited = proceed(given)
        except StopIteration as done:
            result: T = done.value
            return result
