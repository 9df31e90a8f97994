"""Group commit: one fsync of a log covers all appends that wait for it."""

import asyncio
from typing import Final

from barnabas.broker.loop.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.coordinator.ports import Clock
from barnabas.metrics.registry import HistogramCell
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.java_hash import java_hash
from barnabas.storage.log.flush import FlushJob
from barnabas.storage.log.log import Log

QUEUES: Final = 4
"""Threads per log directory, one for each queue of `Offload`: a slow disk completes several fsyncs
in the time of one."""


class Flusher:
    """The flusher of this broker: one fsync at a time per log.

    Requests that come during an fsync share the next one. The appends of one iteration of the event
    loop share one too.
    """

    def __init__(self, offload: Offload, clock: Clock, time_ms: HistogramCell) -> None:
        self._offload = offload
        self._clock = clock
        self._time_ms = time_ms
        self._running: set[Partition] = set()
        self._requested_again: set[Partition] = set()
        """Running partitions whose log has grown since their fsync began."""
        self._idle = asyncio.Event()

    def request(self, partition: Partition) -> None:
        """Flush a partition soon, and call its `log_flushed` after that."""
        if partition in self._running:
            self._requested_again.add(partition)
        else:
            self._running.add(partition)
            asyncio.get_running_loop().call_soon(self._begin, partition)

    async def idle(self) -> None:
        """Return when no fsync is running or requested."""
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    def _begin(self, partition: Partition) -> None:
        # This fsync covers the requests of this iteration of the event loop.
        self._requested_again.discard(partition)
        log = partition.log
        if not log.is_whole:
            self._running.discard(partition)
            self._idle.set()
            return
        job, started = log.begin_flush(), self._clock.monotonic()
        queue = (java_hash(partition.topic) + partition.index) % QUEUES
        work = self._offload.submit(f"flush {log.log_dir.path} {queue}", job.run)
        work.add_done_callback(lambda done: self._finished(partition, log, job, started, done))

    def _finished(
        self,
        partition: Partition,
        log: Log,
        job: FlushJob,
        started: float,
        done: "asyncio.Future[None]",
    ) -> None:
        done.result()
        self._time_ms.observe((self._clock.monotonic() - started) * 1000)
        # Otherwise the replica has moved to another directory, and is flushed there.
        if log is partition.log:
            try:
                log.finish_flush(job)
            except KafkaError as error:
                partition.log_failed(error)
            else:
                partition.log_flushed()
        if partition in self._requested_again:
            self._begin(partition)
        else:
            self._running.discard(partition)
            self._idle.set()
