"""Group commit: whoever waits for a log's disk waits together, one fsync after another."""

import asyncio
from typing import Final

from barnabas.broker.clock import Clock
from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.metrics.registry import HistogramCell
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.java_hash import java_hash
from barnabas.storage.flush import FlushJob
from barnabas.storage.log import Log

LANES: Final = 4
"""Threads that wait for one directory: a slow disk takes several fsyncs in the time of one."""


class Flusher:
    """One fsync at a time per log; requests that come meanwhile share the next.

    The appends of one turn of the loop share one too.
    """

    def __init__(self, offload: Offload, clock: Clock, time_ms: HistogramCell) -> None:
        self._offload = offload
        self._clock = clock
        self._time_ms = time_ms
        self._running: set[Partition] = set()
        self._wanted: set[Partition] = set()
        """Those of them that have grown since their fsync began."""
        self._quiet = asyncio.Event()

    def request(self, partition: Partition) -> None:
        """Flush a partition soon; its `log_flushed` is called when that is done."""
        if partition in self._running:
            self._wanted.add(partition)
        else:
            self._running.add(partition)
            asyncio.get_running_loop().call_soon(self._begin, partition)

    async def idle(self) -> None:
        """Return when nobody waits for the disk any more."""
        while self._running:
            self._quiet.clear()
            await self._quiet.wait()

    def _begin(self, partition: Partition) -> None:
        # What was asked for in this turn of the loop this one has.
        self._wanted.discard(partition)
        log = partition.log
        if not log.is_whole:
            self._running.discard(partition)
            self._quiet.set()
            return
        job, started = log.begin_flush(), self._clock.monotonic()
        lane = (java_hash(partition.topic) + partition.index) % LANES
        work = self._offload.submit(f"flush {log.log_dir.path} {lane}", job.run)
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
        # Otherwise it lies in another directory by now, and is flushed there.
        if log is partition.log:
            try:
                log.finish_flush(job)
            except KafkaError as error:
                partition.log_failed(error)
            else:
                partition.log_flushed()
        if partition in self._wanted:
            self._begin(partition)
        else:
            self._running.discard(partition)
            self._quiet.set()
