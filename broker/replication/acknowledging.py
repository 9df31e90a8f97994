"""Answers to Produce that wait: for replicas (acks=all) or for the disk (flushing first)."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.context import Acknowledgement
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from barnabas.storage.log_parts import Appended


class Wait(NamedTuple):
    """One partition whose acknowledgement is not there yet."""

    partition: Partition
    appended: Appended
    answer: PartitionProduceResponse
    add: Callable[[int, Callable[[KafkaError | None], None]], None]


class Acknowledging:
    """The answer to a request of which some partitions are still waited for."""

    def __init__(self, response: ProduceResponse, waits: list[Wait], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ProduceResponse] = Acknowledgement(loop=loop)
        self._response = response
        self._open = dict(enumerate(waits))
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._timed_out)
        for number, wait in enumerate(waits):
            wait.add(wait.appended.last_offset + 1, self._waiter(number))

    def _waiter(self, number: int) -> Callable[[KafkaError | None], None]:
        return lambda error: self._reached(number, error)

    def _reached(self, number: int, error: KafkaError | None) -> None:
        wait = self._open.pop(number, None)
        if wait is None:
            return
        if error is not None:
            wait.answer.error_code = error.code
        elif wait.partition.is_under_min_isr and wait.add == wait.partition.add_waiter:
            wait.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if not self._open:
            self._answer()

    def _timed_out(self) -> None:
        for wait in self._open.values():
            wait.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._open.clear()
        self._answer()

    def _answer(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_result(self._response)
