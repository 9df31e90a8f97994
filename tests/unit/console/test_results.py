"""The results that tabs share: computed once, renewed in time, and bounded."""

import asyncio

import pytest

from barnabas.console import shared
from barnabas.console.shared import Results
from tests.support.waiting import eventually


class Work:
    """Work that counts, and ends when it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.ends = asyncio.Event()
        self.ends.set()

    async def __call__(self) -> int:
        self.runs += 1
        number = self.runs
        await self.ends.wait()
        return number


async def test_all_tabs_share_one_result() -> None:
    results, work = Results(), Work()
    work.ends.clear()
    tabs = [asyncio.create_task(results.get("key", work, for_s=60)) for _ in range(10)]
    await asyncio.sleep(0)
    # A tab that is closed does not cancel the work of the others.
    tabs[0].cancel()
    work.ends.set()
    assert await asyncio.gather(*tabs[1:]) == [1] * 9
    assert await results.get("key", work, for_s=60) == 1
    assert await results.get("key", work, for_s=0) == 2
    assert await results.get("other", work, for_s=60) == 3


async def test_result_before_stands_in_while_a_new_one_is_computed() -> None:
    results, work = Results(), Work()
    assert await results.get("key", work, for_s=0, stale_s=60) == 1
    work.ends.clear()
    assert await results.get("key", work, for_s=0, stale_s=60) == 1
    await asyncio.sleep(0)
    assert work.runs == 2
    work.ends.set()
    await asyncio.sleep(0.01)
    assert await results.get("key", work, for_s=60, stale_s=60) == 2


async def test_result_that_is_too_old_does_not_stand_in() -> None:
    results, work = Results(), Work()
    assert await results.get("key", work, for_s=0) == 1
    assert await results.get("key", work, for_s=0, stale_s=0) == 2


async def test_error_is_shared_and_does_not_stand_in() -> None:
    async def fail() -> int:
        raise OSError("no broker")

    results, work = Results(), Work()
    for _ in range(2):
        with pytest.raises(OSError, match="no broker"):
            await results.get("key", fail, for_s=60)
    assert await results.get("key", work, for_s=0, stale_s=60) == 1


async def test_few_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_KEPT", 3)
    results, work = Results(), Work()
    for number in range(5):
        await results.get(number, work, for_s=60)
    assert await results.get(4, work, for_s=60) == 5
    assert await results.get(0, work, for_s=60) == 6


async def test_change_makes_all_results_new() -> None:
    results, work = Results(), Work()
    assert await results.get("key", work, for_s=60) == 1
    results.forget()
    assert await results.get("key", work, for_s=60) == 2


async def test_result_rests_for_a_time_that_grows_with_the_rows_read_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large cluster answered the same questions all the time while a tab was open."""
    loop, ahead = asyncio.get_running_loop(), 0.0
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + ahead)
    results, work = Results(), Work()

    async def result(stale_s: float = 0.0) -> int:
        return await results.get("key", work, for_s=2, stale_s=stale_s, rows=lambda _: 10_000)

    assert await result() == 1
    ahead = 45.0
    assert await result() == 1
    ahead = 75.0
    # While it is computed anew, it may be as old as its rest and half a minute.
    assert await result(stale_s=30) == 1

    async def is_new() -> bool:
        return await result() == 2

    await eventually(is_new)


async def test_rest_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, ahead = asyncio.get_running_loop(), 0.0
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + ahead)
    results, work = Results(), Work()
    assert await results.get("key", work, for_s=0, rows=lambda _: 10**9) == 1
    ahead = shared.LONGEST_REST_S + 1
    assert await results.get("key", work, for_s=0, rows=lambda _: 10**9) == 2


async def test_error_does_not_rest() -> None:
    async def fail() -> int:
        raise OSError("no broker")

    results, work = Results(), Work()
    with pytest.raises(OSError, match="no broker"):
        await results.get("key", fail, for_s=0, rows=lambda _: 10**9)
    assert await results.get("key", work, for_s=0, rows=lambda _: 10**9) == 1
