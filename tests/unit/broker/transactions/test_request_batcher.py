"""One batch at a time is in flight, and the next takes all that gathers."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.cluster.peers import Then
from barnabas.broker.transactions.request_batcher import RequestBatcher
from tests.unit.broker.transactions.fake_peer import turns


class Queue:
    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.sent: list[tuple[list[int], Then]] = []
        self.answered: list[tuple[list[int], Any]] = []
        self.batcher = RequestBatcher(self._take, self._send, self._handle)

    def put(self, *items: int) -> None:
        for item in items:
            self.waiting.append(item)
            self.batcher.notify()

    def answer(self, answer: Any) -> None:
        self.sent[-1][1](answer)

    def _take(self) -> list[int] | None:
        taken, self.waiting = self.waiting, []
        return taken or None

    def _send(self, batch: list[int], then: Then) -> None:
        if 0 in batch:
            raise KeyError("cannot be sent")
        self.sent.append((batch, then))

    def _handle(self, batch: list[int], answer: Any) -> None:
        self.answered.append((batch, answer))
        if answer == "fault":
            raise KeyError("answer")


async def test_requests_of_one_iteration_are_sent_together() -> None:
    queue = Queue()
    queue.put(1, 2)
    queue.put(3)
    assert not queue.sent
    await turns()
    assert [batch for batch, _ in queue.sent] == [[1, 2, 3]]
    queue.put(4)
    await turns()
    assert len(queue.sent) == 1


async def test_next_batch_follows_the_answer_at_once() -> None:
    queue = Queue()
    queue.put(1)
    await turns()
    queue.put(2, 3)
    await turns()
    assert len(queue.sent) == 1
    queue.answer("yes")
    assert [batch for batch, _ in queue.sent] == [[1], [2, 3]]
    queue.answer(None)
    assert queue.answered == [([1], "yes"), ([2, 3], None)]
    queue.put(4)
    await turns()
    assert [batch for batch, _ in queue.sent][2:] == [[4]]


async def test_fault_of_one_batch_does_not_stop_later_ones() -> None:
    queue = Queue()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    queue.put(0)
    await turns()
    queue.put(1)
    await turns()
    queue.put(2)
    with pytest.raises(KeyError):
        queue.answer("fault")
    assert [batch for batch, _ in queue.sent] == [[1], [2]]
