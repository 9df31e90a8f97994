"""Group commit: whoever waits for the disk waits together, one fsync after another."""

import asyncio

from barnabas.broker.clock import Clock
from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.metrics.registry import HistogramCell
from barnabas.protocol.errors import KafkaError
from barnabas.storage.flush import FlushJob
from barnabas.storage.log import Log


class Flusher:
    """One round of fsyncs at a time per log directory; requests that come meanwhile share the next.

    The appends of one turn of the loop share a round too.
    """

    def __init__(self, offload: Offload, clock: Clock, time_ms: HistogramCell) -> None:
        self._offload = offload
        self._clock = clock
        self._time_ms = time_ms
        self._wanted: dict[str, set[Partition]] = {}
        self._running: set[str] = set()
        self._quiet = asyncio.Event()

    def request(self, partition: Partition) -> None:
        """Flush a partition soon; its `log_flushed` is called when that is done."""
        path = partition.log.log_dir.path
        self._wanted.setdefault(path, set()).add(partition)
        if path not in self._running:
            self._running.add(path)
            asyncio.get_running_loop().call_soon(self._round, path)

    async def idle(self) -> None:
        """Return when nobody waits for the disk any more."""
        while self._running:
            self._quiet.clear()
            await self._quiet.wait()

    def _round(self, path: str) -> None:
        partitions = [each for each in self._wanted.pop(path, ()) if each.log.is_whole]
        if not partitions:
            self._running.discard(path)
            self._quiet.set()
            return
        jobs = [(each, each.log, each.log.begin_flush()) for each in partitions]
        started = self._clock.monotonic()
        work = self._offload.submit(f"flush {path}", lambda: _run([job for _, _, job in jobs]))
        work.add_done_callback(lambda done: self._finished(path, jobs, started, done))

    def _finished(
        self,
        path: str,
        jobs: list[tuple[Partition, Log, FlushJob]],
        started: float,
        done: "asyncio.Future[None]",
    ) -> None:
        done.result()
        self._time_ms.observe((self._clock.monotonic() - started) * 1000)
        for partition, log, job in jobs:
            if log is not partition.log:
                # It lies in another directory by now, and is flushed there.
                continue
            try:
                log.finish_flush(job)
            except KafkaError as error:
                partition.log_failed(error)
            else:
                partition.log_flushed()
        self._round(path)


def _run(jobs: list[FlushJob]) -> None:
    for job in jobs:
        job.run()
