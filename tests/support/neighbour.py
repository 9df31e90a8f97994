"""A client that is served while a broker is attacked: its answers, its errors, its times."""

import threading
import time
from itertools import pairwise
from statistics import median
from typing import Final, Self

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from benchmarks import raw
from tests.support import waiting

TOPIC: Final = "neighbour"


def produced(topic: str, batch: bytes) -> ProduceRequest:
    """Return the request that appends a batch to partition 0, acks=all."""
    data = PartitionProduceData(index=0, records=batch)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def produce_error(client: raw.Client, topic: str, batch: bytes) -> ErrorCode:
    """Append a batch; return the error of the answer."""
    answer = client.call(produce.API, 9, produced(topic, batch))
    return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)


class Neighbour:
    """A context manager: meanwhile a thread appends one small batch after another.

    The topic exists. A batch is compressed and has a key: if the topic is compacted, the broker
    reads its records, with the codecs that the attack may use too.
    """

    def __init__(self, port: int, *, topic: str = TOPIC, every_s: float = 0.002) -> None:
        self._client, self._topic = raw.connect(port), topic
        record = Record(0, time.time_ns() // 1_000_000, b"k", bytes(100), ())
        self._batch = build_batch([record], compression=Compression.GZIP)
        self._every_s = every_s
        self._taken: list[tuple[float, float]] = []
        self.errors: list[ErrorCode | Exception] = []
        """The requests that were not served, by their errors."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        request = raw.frame(produce.API, 9, produced(self._topic, self._batch))
        raw.accepted(self._client, request)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                code = produce_error(self._client, self._topic, self._batch)
            except OSError as error:
                self.errors.append(error)
                return
            if code:
                self.errors.append(code)
            self._taken.append((began, time.monotonic() - began))
            due = max(due + self._every_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    @property
    def served(self) -> int:
        """The number of answers so far."""
        return len(self._taken)

    def times(self, since: float, until: float) -> list[float]:
        """Return the seconds of the requests that were on their way in an interval, ascending."""
        return sorted(
            took for began, took in self._taken if since <= began + took and began < until
        )

    def p99_ms(self, since: float, until: float) -> float:
        """Return the 99th percentile of a second in ms, the median over an interval.

        Other processes of the machine disturb some seconds, but seldom most of them.
        """
        count = max(1, round(until - since))
        edges = [since + (until - since) * each / count for each in range(count + 1)]
        seconds = [taken for edge in pairwise(edges) if (taken := self.times(*edge))]
        return median(taken[len(taken) * 99 // 100] for taken in seconds) * 1e3

    def p99_ms_of_next(self, seconds: float) -> float:
        """Return the same for the next seconds."""
        began = time.monotonic()
        time.sleep(seconds)
        ended, before = time.monotonic(), self.served
        # The request that is on its way has begun in time.
        waiting.until(lambda: self.errors or self.served > before)
        return self.p99_ms(began, ended)
