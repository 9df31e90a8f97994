"""Answers that come as futures, and what follows them."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.soon import chain


def future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


async def test_chain_returns_the_result_of_what_follows() -> None:
    first = future()
    chained = chain(first, lambda number: number + 1)
    first.set_result(1)
    assert await chained == 2


async def test_chain_waits_for_a_future_that_follows() -> None:
    first, second = future(), future()
    chained = chain(first, lambda _: second)
    first.set_result(1)
    await asyncio.sleep(0)
    assert not chained.done()
    second.set_result(2)
    assert await chained == 2


async def test_chain_passes_errors_on() -> None:
    failed = future()
    failed.set_exception(KeyError("first"))
    with pytest.raises(KeyError, match="first"):
        await chain(failed, lambda _: 1)

    def fail(_: Any) -> Any:
        raise KeyError("between")

    done = future()
    done.set_result(1)
    with pytest.raises(KeyError, match="between"):
        await chain(done, fail)
    second = future()
    second.set_exception(KeyError("second"))
    with pytest.raises(KeyError, match="second"):
        await chain(done, lambda _: second)


async def test_cancelling_a_chain_cancels_what_it_waits_for() -> None:
    first, second = future(), future()
    chain(first, lambda _: second).cancel()
    await asyncio.sleep(0)
    assert first.cancelled()
    done = future()
    done.set_result(1)
    chained = chain(done, lambda _: second)
    await asyncio.sleep(0)
    chained.cancel()
    await asyncio.sleep(0)
    assert second.cancelled()


@pytest.mark.parametrize("late", ["result", "error", "cancel"])
async def test_cancelled_chain_takes_nothing_that_comes_late(late: str) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    first = future()
    chained = chain(first, told.append)
    chained.cancel()
    if late == "result":
        first.set_result(1)
    elif late == "error":
        first.set_exception(KeyError())
    else:
        first.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert chained.cancelled()
    del first, chained
    assert told == []


async def test_cancelled_first_answer_cancels_the_chain() -> None:
    first = future()
    chained = chain(first, lambda _: 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chained
