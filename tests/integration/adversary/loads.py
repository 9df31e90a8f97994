"""Clients that run while their broker is killed, and keep what the broker acknowledged."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

PARTITIONS = 3
IN_TIME_S = 60.0
_CLIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 500,
}


class Load:
    """Runs `step` repeatedly in a thread; `stop` raises the error that ended it."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(IN_TIME_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except Exception as error:
            self._error = error


class Sender:
    """Sends the numbers 0, 1, 2... to the partitions of a topic in turn.

    `idempotent` has five requests in flight. Without it, a record that is not acknowledged is given
    up soon, and one that is acknowledged may be there twice. Records have 400 bytes, so that
    segments roll.
    """

    def __init__(self, servers: str, topic: str, *, idempotent: bool, acks: str = "all") -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """The acknowledged offset of each number, by partition."""
        self.refused: list[str] = []
        self._idempotent = idempotent
        self._producer = Producer(
            {
                **_CLIENT,
                "bootstrap.servers": servers,
                "enable.idempotence": idempotent,
                "acks": acks,
                "max.in.flight": 5,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "queue.buffering.max.messages": 3_000,
                "message.timeout.ms": 60_000 if idempotent else 2_000,
            }
        )
        self.load = Load(self._step)

    @property
    def promised(self) -> int:
        """Return how many records have been acknowledged."""
        return sum(len(known) for known in list(self.acknowledged.values()))

    def wait_for_more(self, than: int) -> None:
        """Wait until more records are acknowledged; give up if the broker has ended."""
        deadline = time.monotonic() + IN_TIME_S
        while self.promised <= than:
            assert time.monotonic() < deadline, f"no record was acknowledged after {than}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Send no more, and wait for the outstanding requests."""
        self.load.stop()
        assert self._producer.flush(IN_TIME_S) == 0

    def _step(self) -> None:
        for _ in range(30):
            try:
                self._producer.produce(
                    self.topic,
                    b"%-400d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                break
            self.sent += 1
        self._producer.poll(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition()][int(message.value())] = message.offset()
        else:
            self.refused.append(str(error))

    def check(self, found: dict[int, list[tuple[int, int]]]) -> None:
        """Compare the acknowledged records with (offset, number) of every record in the
        partitions."""
        if self._idempotent:
            assert not self.refused
            assert self.promised == self.sent
        for partition in range(PARTITIONS):
            log = dict(found[partition])
            for number, offset in self.acknowledged[partition].items():
                assert log.get(offset) == number, (
                    f"{number} was acknowledged at {partition}:{offset}"
                )
            if self._idempotent:
                numbers = [number for _, number in found[partition]]
                assert numbers == list(range(partition, self.sent, PARTITIONS))


class Committer:
    """A member of a group that reads a topic and commits the offsets of what it has read."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        self.committed: dict[int, int] = {}
        """The highest offset whose commit was acknowledged, by partition."""
        self.commits = 0
        self._group = group
        self._servers = servers
        self._consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])
        self.load = Load(self._step)

    def wait_for_more(self, than: int) -> None:
        """Wait until more commits are acknowledged."""
        deadline = time.monotonic() + IN_TIME_S
        while self.commits <= than:
            assert time.monotonic() < deadline, f"no commit was acknowledged after {than}"
            time.sleep(0.01)

    def finish(self) -> None:
        self.load.stop()
        self._consumer.close()

    def _step(self) -> None:
        messages = [m for m in self._consumer.consume(200, 0.05) if m.error() is None]
        ends = {m.partition(): TopicPartition(m.topic(), m.partition(), m.offset() + 1)
                for m in messages}  # fmt: skip
        if not ends:
            return
        try:
            done = self._consumer.commit(offsets=list(ends.values()), asynchronous=False)
        except KafkaException:
            return
        for row in done:
            if row.error is None:
                before = self.committed.get(row.partition, 0)
                self.committed[row.partition] = max(before, row.offset)
                self.commits += 1

    def check(self, promised: dict[int, int], topic: str) -> None:
        """Check after a restart that the group has every commit that was acknowledged."""
        wanted = [TopicPartition(topic, partition) for partition in promised]
        if not wanted:
            return
        for row in eventually(lambda: self._ask(wanted)):
            assert row.offset >= promised[row.partition], "an acknowledged commit was lost"

    def _ask(self, wanted: list[TopicPartition]) -> list[TopicPartition]:
        # librdkafka answers from its own cache if it can, so another consumer asks.
        asker = Consumer({**_CLIENT, "bootstrap.servers": self._servers, "group.id": self._group})
        try:
            return asker.committed(wanted, timeout=5)
        finally:
            asker.close()


def read_all(servers: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Return the offset and number of every record in log order, by partition."""
    reader = Consumer(
        {
            **_CLIENT,
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ended: set[int] = set()
    reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    deadline = time.monotonic() + IN_TIME_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {ended} were read to their ends"
        for message in reader.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found[message.partition()].append((message.offset(), int(message.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return found


def eventually(ask: Callable[[], Any]) -> Any:
    """Return the answer when there is one: a client needs a while to find a restarted broker."""
    deadline = time.monotonic() + IN_TIME_S
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
