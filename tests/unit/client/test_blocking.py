"""The blocking front of the client, without a broker."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from barnabas.client.blocking import ClientLoop
from barnabas.client.connection import BrokerUnreachable
from tests.support.ports import ports_in_a_row

DEADLINE = 20.0


@pytest.fixture
def loop() -> Iterator[ClientLoop]:
    loop = ClientLoop()
    yield loop
    loop.close()


async def answer(value: object) -> object:
    await asyncio.sleep(0)
    return value


async def failing() -> None:
    raise ZeroDivisionError


class Endless:
    """A coroutine that only a cancellation ends, and that takes a moment to end."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.ended.set()


def test_run_returns_the_result_or_raises_the_error(loop: ClientLoop) -> None:
    assert loop.run(answer(5)) == 5
    assert loop.run(answer(6), DEADLINE) == 6
    with pytest.raises(ZeroDivisionError):
        loop.run(failing())


def test_submitted_coroutines_run_beside_each_other(loop: ClientLoop) -> None:
    async def meet(mine: asyncio.Event, other: asyncio.Event) -> None:
        mine.set()
        await other.wait()

    one, two = asyncio.Event(), asyncio.Event()
    first, second = loop.submit(meet(one, two)), loop.submit(meet(two, one))
    assert first.result(DEADLINE) is None
    assert second.result(DEADLINE) is None


def test_coroutine_has_ended_when_its_caller_times_out(loop: ClientLoop) -> None:
    endless = Endless()
    with pytest.raises(TimeoutError, match=r"not finished in 0.01 s"):
        loop.run(endless.run(), timeout=0.01)
    assert endless.ended.is_set()


def test_timeout_of_the_coroutine_itself_keeps_its_text(loop: ClientLoop) -> None:
    async def late() -> None:
        raise TimeoutError("EndTxn was not answered")

    with pytest.raises(TimeoutError, match="EndTxn"):
        loop.run(late(), timeout=DEADLINE)


def test_interrupted_wait_cancels_the_coroutine(
    loop: ClientLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Endless()

    def interrupted(_: object) -> None:
        assert endless.began.wait(DEADLINE)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(endless.run())
    assert endless.ended.wait(DEADLINE)


def test_blocking_call_in_a_coroutine_of_the_loop_is_refused(loop: ClientLoop) -> None:
    async def blocks() -> None:
        loop.run(answer(1))

    with pytest.raises(RuntimeError, match="must await"):
        loop.run(blocks(), DEADLINE)


def test_close_cancels_what_runs_and_refuses_more(loop: ClientLoop) -> None:
    endless = Endless()
    future = loop.submit(endless.run())
    assert endless.began.wait(DEADLINE)
    loop.close()
    assert endless.ended.is_set()
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(answer(1))
    loop.close()


def test_process_has_one_loop_until_it_is_closed() -> None:
    found: list[ClientLoop] = []
    threads = [
        threading.Thread(target=lambda: found.append(ClientLoop.of_process())) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    first = ClientLoop.of_process()
    assert {*found} == {first}
    first.close()
    second = ClientLoop.of_process()
    assert second is not first
    assert second.run(answer(1)) == 1
    second.close()


def test_cluster_that_cannot_be_reached_is_tried_again(loop: ClientLoop) -> None:
    servers = f"127.0.0.1:{ports_in_a_row(1)}"
    for _ in range(2):
        with pytest.raises(BrokerUnreachable):
            loop.cluster(servers, timeout=1.0)


def test_loop_of_another_process_is_refused(
    loop: ClientLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.getpid() + 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: other)
        with pytest.raises(RuntimeError, match="use ClientLoop"):
            loop.run(answer(1))
        loop.close()
    assert loop.run(answer(1)) == 1, "another process closed the loop"
