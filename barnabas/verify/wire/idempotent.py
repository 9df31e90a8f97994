"""An idempotent producer with several batches in flight, which it sends again after a fault."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import init_producer_id
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.verify.history import History, Partition
from barnabas.verify.wire.batches import Sent, batch, leader_connection, send
from barnabas.verify.wire.recorder import PATIENCE, OperationFailed, Recorder

IN_FLIGHT: Final = 5
"""The number of batches that a broker must remember."""
_PAUSE: Final = 0.05


class _InFlight(NamedTuple):
    op: int
    data: bytes


class IdempotentProducer:
    """A producer for one partition, with up to IN_FLIGHT batches in flight.

    `send_many` raises OperationFailed.
    """

    def __init__(
        self, history: History, cluster: Cluster, proc: str, at: Partition, value_size: int
    ) -> None:
        self._history = history
        self._cluster = cluster
        self._proc = proc
        self._at = at
        self._value_size = value_size
        self._identity = ProducerIdAndEpoch(-1, -1)
        self._sequence = 0

    async def init(self) -> None:
        """Get a new producer id."""

        async def ask() -> ProducerIdAndEpoch:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=0
            )
            answer = await self._cluster.ask(init_producer_id.API, request)
            check(answer.error_code)
            return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

        recorder = Recorder(self._history, self._cluster, self._proc)
        self._identity = await recorder.do(
            "init", {"id": None}, ask, lambda who: {"producer": list(who)}
        )
        self._sequence = 0

    async def send_many(self, batches: Sequence[Sequence[Sent]]) -> None:
        """Send batches without waiting in between; repeat those without a response, in order.

        After a refusal the result of the other batches is unknown, and the producer needs `init`.
        """
        in_flight = deque(self._prepare(records) for records in batches)
        deadline = time.monotonic() + PATIENCE
        while in_flight:
            try:
                await self._attempt(in_flight)
            except (BrokerUnreachable, TimeoutError) as error:
                if time.monotonic() > deadline:
                    self._give_up(in_flight, type(error).__name__)
                    raise OperationFailed(error) from error
                await asyncio.sleep(_PAUSE)
            except KafkaError as error:
                if not error.code.retriable or time.monotonic() > deadline:
                    # An earlier attempt may have written it.
                    self._give_up(in_flight, error.code.name)
                    raise OperationFailed(error) from error
                await asyncio.sleep(_PAUSE)
                await self._cluster.retrying(lambda: self._cluster.refresh([self._at[0]]))

    def _prepare(self, records: Sequence[Sent]) -> _InFlight:
        data = batch(
            records,
            self._identity,
            self._sequence,
            transactional=False,
            now_ms=int(time.time() * 1000),
            size=self._value_size,
        )
        self._sequence = (self._sequence + len(records)) & MAX_SEQUENCE
        said = [[sent.key, sent.value, sent.extra] for sent in records]
        value = {"id": None, "txn": None, "at": self._at, "records": said}
        return _InFlight(self._history.invoke(self._proc, "send", value), data)

    async def _attempt(self, in_flight: deque[_InFlight]) -> None:
        """Send all batches once and remove the acknowledged ones; raises the first error."""
        connection = await leader_connection(self._cluster, self._at)
        answers = await asyncio.gather(
            *(
                send(
                    connection,
                    self._at,
                    each.data,
                    transactional_id=None,
                    newer=False,
                    timeout=self._cluster.timeout,
                )
                for each in in_flight
            ),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            self._history.ok(in_flight.popleft().op, {"offset": answer})

    def _give_up(self, in_flight: deque[_InFlight], err: str) -> None:
        for index, each in enumerate(in_flight):
            self._history.info(each.op, err if index == 0 else "an earlier batch failed")
