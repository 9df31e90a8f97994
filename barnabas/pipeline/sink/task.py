"""One task of the sink: a producer that leaves its transaction open for the driver to decide.

It takes batches that are encoded already, and runs on the event loop of the client.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Delivered, EncodedBatch, Producer, ProducerSettings
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.transactional_producer import (
    AbortableError,
    FatalError,
    TransactionalProducer,
    TransactionStateError,
)
from barnabas.pipeline.sink.options import Delivery, SinkOptions
from barnabas.pipeline.sink.planning import SinkPlan
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.pipeline.sink.protocol import SinkError, Winner
from barnabas.pipeline.sink.task_ids import TaskIds
from barnabas.protocol.errors import ErrorCode, KafkaError


class TaskLabel(NamedTuple):
    """The attempt at a task of a batch; its text stands in errors."""

    query_id: str
    batch: int
    task: int
    attempt: int

    def __str__(self) -> str:
        return f"task {self.task} (attempt {self.attempt}) of batch {self.batch}"


class RoutedBatch(NamedTuple):
    """An encoded batch with its partition, and the number of its first row within the task."""

    topic: str
    partition: int
    encoded: EncodedBatch
    first_row: int


class SinkProcess:
    """The state of a process that runs tasks: its name, and its transactional ids by sink."""

    def __init__(self) -> None:
        # A process id alone is used again, by other hosts too.
        host = "".join(c for c in socket.gethostname().partition(".")[0] if c.isalnum())[:20]
        self.name = f"{host}-{os.getpid()}-{secrets.token_hex(6)}"
        self._ids: dict[tuple[str, str, Delivery], TaskIds] = {}

    @classmethod
    def current(cls) -> "SinkProcess":
        """Return the state of this process; workers are forked, so it is kept by process id."""
        return _PROCESSES.setdefault(os.getpid(), cls())

    def ids(self, options: SinkOptions) -> TaskIds:
        """Return the transactional ids of this process for a sink."""
        key = options.bootstrap_servers, options.sink_id, options.delivery
        if key not in self._ids:
            # Ids of one sink on two clusters, or with two guarantees, have different names.
            self._ids[key] = TaskIds(options.sink_id, f"{self.name}-{len(self._ids)}")
        return self._ids[key]


_PROCESSES: Final[dict[int, SinkProcess]] = {}


class TaskOutput:
    """The producer of one task. No rows: no transaction."""

    def __init__(self, cluster: Cluster, plan: SinkPlan, ids: TaskIds, label: TaskLabel) -> None:
        self._cluster = cluster
        self._plan = plan
        self._ids = ids
        self._label = label
        self._producer: Producer | None = None
        self._transactional_id = ""
        self._began_ms = -1
        self._rows = 0
        self._first: Place | None = None
        self._failure: SinkError | None = None

    async def send(self, batches: Iterable[RoutedBatch]) -> None:
        """Queue batches; wait while the buffer is full. Raises SinkError if a batch has failed."""
        producer = self._producer or await self._open()
        for each in batches:
            self._raise_failure()
            try:
                delivered = await producer.send_batch(each.topic, each.partition, each.encoded)
            except KafkaError as error:
                self._raise_failure()
                raise self._failed(each, error) from error
            self._rows += each.encoded.count
            delivered.add_done_callback(partial(self._note, each))

    async def finish(self) -> Winner | None:
        """Wait until all rows are written, and leave the transaction open; None without one."""
        if self._producer is None:
            return None
        await self._producer.flush()
        self._raise_failure()
        winner = await self._winner(self._producer)
        await self._producer.abandon()
        return winner

    async def abort(self) -> None:
        """Drop the rows. An abort that fails is left to the driver, which ends what is open."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        ended = (AbortableError, FatalError, TransactionStateError, TimeoutError)
        if isinstance(producer, TransactionalProducer):
            identity = producer.identity
            with suppress(*ended):
                await producer.abort_transaction()
                if self._rows:
                    # Without rows there was no transaction, which could be seen to be completed.
                    self._ids.put_back(self._transactional_id, identity)
        await producer.abandon()

    async def _open(self) -> Producer:
        settings = ProducerSettings(
            buffer_size=self._plan.options.buffer_size,
            delivery_timeout=self._plan.options.delivery_timeout_ms / 1000,
        )
        if not self._plan.options.is_transactional:
            self._producer = Producer(self._cluster, settings)
            return self._producer
        self._transactional_id = await take_id(self._cluster, self._ids)
        self._began_ms = int(time.time() * 1000)
        producer = await self._initialised(settings)
        while producer.unanswered:
            # The first InitProducerId may still arrive, when the transaction is decided, and would
            # abort it: the id is not used again.
            self._transactional_id = self._ids.take()
            producer = await self._initialised(settings)
        await producer.begin_transaction()
        self._producer = producer
        return producer

    async def _initialised(self, settings: ProducerSettings) -> TransactionalProducer:
        producer = TransactionalProducer(
            self._cluster,
            self._transactional_id,
            settings,
            transaction_timeout=self._plan.transaction_timeout_ms / 1000,
            two_phase=self._plan.two_phase_tasks,
        )
        await producer.init_transactions()
        return producer

    async def _winner(self, producer: Producer) -> Winner | None:
        if not isinstance(producer, TransactionalProducer):
            return None
        identity = producer.identity
        self._ids.put_back(self._transactional_id, identity)
        return Winner(
            self._transactional_id, Identity(*identity), self._rows, self._first, self._began_ms
        )

    def _note(self, batch: RoutedBatch, delivered: "asyncio.Future[Delivered]") -> None:
        if delivered.cancelled():
            return
        error = delivered.exception()
        if error is None:
            if self._first is None:
                self._first = Place(*delivered.result())
        elif self._failure is None:
            self._failure = self._failed(batch, error)

    def _failed(self, batch: RoutedBatch, error: BaseException) -> SinkError:
        count = batch.encoded.count
        rows = f"row {batch.first_row} was" if count == 1 else f"{count} rows were"
        what = f"{self._label}: {rows} not written to {batch.topic}-{batch.partition}: {error}"
        if isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
            what += f"; raise max.message.bytes of {batch.topic}, or lower kafka.batch.size"
        return SinkError(what)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


async def take_id(cluster: Cluster, ids: TaskIds) -> str:
    """Take the id that was written with longest ago if it is completed, otherwise a new one."""
    oldest = ids.oldest()
    if oldest is None:
        return ids.take()
    try:
        row = await TransactionAdmin(cluster).describe(oldest[0])
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        ids.forget(oldest[0])
        return ids.take()
    shown = ProducerIdAndEpoch(row.producer_id, row.producer_epoch)
    if ids.take_again(oldest[0], row.transaction_state, shown):
        return oldest[0]
    return ids.take()
