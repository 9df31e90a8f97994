"""Load on a cluster that loses brokers: inputs that are written continuously, and partitions whose
gaps between acknowledged records are measured."""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

_QUICK = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 500,
    "enable.idempotence": True,
    "message.timeout.ms": 300_000,
}
_TICK_S = 0.02
IN_TIME_S = 60.0


class Feeder(threading.Thread):
    """Writes numbers to the partitions of each topic in turn; `hurry` writes the rest at once.

    The rate is `pace` a second at first and falls with the rest: on a slow machine too, records are
    left for the last kill.
    """

    def __init__(
        self, servers: str, topics: Sequence[str], partitions: int, total: int, pace: int
    ) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 10, **_QUICK})
        self._topics = topics
        self._partitions = partitions
        self._total = total
        self._pace = pace
        self._hurry = threading.Event()

    def run(self) -> None:
        began, written = time.monotonic(), 0
        while written < self._total:
            passed = (time.monotonic() - began) * self._pace / self._total
            due = int(self._total * -math.expm1(-passed))
            until = self._total if self._hurry.wait(_TICK_S) else min(due, self._total)
            for number in range(written, until):
                for topic in self._topics:
                    self._write(topic, number)
            written = max(written, until)

    def _write(self, topic: str, number: int) -> None:
        while True:
            try:
                self._producer.produce(topic, b"%d" % number, partition=number % self._partitions)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    @property
    def has_written_all(self) -> bool:
        return not self.is_alive()

    def hurry(self) -> None:
        """Return when everything is acknowledged."""
        self._hurry.set()
        self.join()
        assert self._producer.flush(IN_TIME_S) == 0


class Prober(threading.Thread):
    """Writes a record to each partition of a topic continuously; `longest_gaps` returns the longest
    time without an acknowledged record of each, in seconds, since the last call."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **_QUICK})
        self._topic = topic
        self._last = dict.fromkeys(range(partitions), time.monotonic())
        self._gaps = dict.fromkeys(range(partitions), 0.0)
        self._asked = time.monotonic()
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged = dict.fromkeys(range(partitions), 0)

    def run(self) -> None:
        while not self._enough.wait(_TICK_S):
            for partition in self._last:
                self._producer.produce(
                    self._topic, b"probe", partition=partition, on_delivery=self._taken
                )
            self._producer.poll(0)

    def _taken(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        now = time.monotonic()
        partition: Any = message.partition()
        with self._lock:
            self.acknowledged[partition] += 1
            since = max(self._last[partition], self._asked)
            self._gaps[partition] = max(self._gaps[partition], now - since)
            self._last[partition] = now

    def longest_gaps(self) -> Mapping[int, float]:
        with self._lock:
            now, gaps = time.monotonic(), self._gaps
            self._gaps = dict.fromkeys(gaps, 0.0)
            asked, self._asked = self._asked, now
            return {
                each: max(gap, now - max(self._last[each], asked)) for each, gap in gaps.items()
            }

    def finish(self) -> None:
        """Return when everything is acknowledged."""
        self._enough.set()
        self.join()
        assert self._producer.flush(IN_TIME_S) == 0
