"""Work in steps that is begun at once."""

from collections.abc import Generator
from typing import Any

import pytest

from barnabas.protocol.steps import promptly


class Awaited:
    """A future that nothing waits for here."""

    def add_done_callback(self, fn: Any, /) -> None: ...

    def cancel(self) -> bool:
        return False

    def result(self) -> Any: ...


FIRST, SECOND = Awaited(), Awaited()


def work(seen: list[str], *, waits: bool) -> Generator[Any, Any, str]:
    yield None
    if not waits:
        return "done"
    try:
        first = yield FIRST
        yield None
        second = yield SECOND
    except ValueError as error:
        return f"refused: {error}"
    finally:
        seen.append("closed")
    return f"{first} {second}"


def begun(seen: list[str]) -> Generator[Any, Any, str]:
    rest: Any = promptly(work(seen, waits=True))
    assert next(rest) is FIRST
    return rest


def test_short_work_has_its_result_at_once() -> None:
    assert promptly(work([], waits=False)) == "done"


def test_work_continues_with_the_results_of_its_futures() -> None:
    rest = begun([])
    assert rest.send("one") is None
    assert next(rest) is SECOND
    with pytest.raises(StopIteration) as done:
        rest.send("two")
    assert done.value.value == "one two"


def test_error_of_a_future_reaches_the_work() -> None:
    with pytest.raises(StopIteration) as done:
        begun([]).throw(ValueError("no"))
    assert done.value.value == "refused: no"


def test_abandoned_work_is_closed() -> None:
    seen: list[str] = []
    begun(seen).close()
    assert seen == ["closed"]
