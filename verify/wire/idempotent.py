"""An idempotent producer with several batches in flight, as they are sent again after a fault."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import init_producer_id
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.verify.history import History, Place
from barnabas.verify.wire.batches import Identity, Sent, batch, leader_connection, send
from barnabas.verify.wire.recorder import PATIENCE, NotDone, Recorder

IN_FLIGHT: Final = 5
"""As many as a broker must remember."""
_PAUSE: Final = 0.05


class _Flying(NamedTuple):
    op: int
    data: bytes


class Idempotent:
    """Writes to one partition, up to IN_FLIGHT batches at once; `send_many` raises NotDone."""

    def __init__(
        self, history: History, cluster: Cluster, proc: str, at: Place, value_size: int
    ) -> None:
        self._history = history
        self._cluster = cluster
        self._proc = proc
        self._at = at
        self._value_size = value_size
        self._identity = Identity(-1, -1)
        self._sequence = 0

    async def init(self) -> None:
        """Takes a producer id of its own."""

        async def ask() -> Identity:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=0
            )
            answer = await self._cluster.ask(init_producer_id.API, request)
            check(answer.error_code)
            return Identity(answer.producer_id, answer.producer_epoch)

        recorder = Recorder(self._history, self._cluster, self._proc)
        self._identity = await recorder.do(
            "init", {"id": None}, ask, lambda who: {"producer": list(who)}
        )
        self._sequence = 0

    async def send_many(self, batches: Sequence[Sequence[Sent]]) -> None:
        """Sends batches without waiting in between; all that is not answered goes again, in order.

        A refusal leaves the rest unknown, and the producer needs `init`.
        """
        flying = deque(self._prepare(records) for records in batches)
        deadline = time.monotonic() + PATIENCE
        while flying:
            try:
                await self._fly(flying)
            except (BrokerUnreachable, TimeoutError) as error:
                if time.monotonic() > deadline:
                    self._give_up(flying, type(error).__name__)
                    raise NotDone(error) from error
                await asyncio.sleep(_PAUSE)
            except KafkaError as error:
                if not error.code.retriable or time.monotonic() > deadline:
                    # It may have been written by an earlier attempt.
                    self._give_up(flying, error.code.name)
                    raise NotDone(error) from error
                await asyncio.sleep(_PAUSE)
                await self._cluster.retrying(lambda: self._cluster.refresh([self._at[0]]))

    def _prepare(self, records: Sequence[Sent]) -> _Flying:
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
        return _Flying(self._history.invoke(self._proc, "send", value), data)

    async def _fly(self, flying: deque[_Flying]) -> None:
        """One attempt for all; what was answered leaves the queue. Raises the first error."""
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
                for each in flying
            ),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            self._history.ok(flying.popleft().op, {"offset": answer})

    def _give_up(self, flying: deque[_Flying], err: str) -> None:
        for index, each in enumerate(flying):
            self._history.info(each.op, err if index == 0 else "an earlier batch failed")
