"""kafka-python copies records from input to output, and reads the output."""

from collections.abc import Iterator
from typing import Any

import kafka
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from tests.integration.transactions.transformer import (
    Route,
    Taken,
    insist,
    silently,
)

_QUICK = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}


class Worker:
    """See `transformer.Worker`."""

    def __init__(self, servers: str, route: Route) -> None:
        self._route = route
        self._config = {"bootstrap_servers": servers, **_QUICK}
        self._consumer = kafka.KafkaConsumer(
            **self._config,
            group_id=self._route.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        # See `interop/with_kafka_python.py`.
        self._consumer.partitions_for_topic(self._route.input)
        self._consumer.subscribe([self._route.input])
        self._producer: kafka.KafkaProducer | None = None
        self.renew()

    def poll(self, limit: int) -> list[Taken]:
        polled = self._consumer.poll(timeout_ms=500, max_records=limit)
        return [
            Taken(each.partition, each.offset, each.value)
            for records in polled.values()
            for each in records
        ]

    def rewind(self) -> dict[int, int]:
        while not self._consumer.assignment():
            self._consumer.poll(timeout_ms=500)
        at = {}
        for place in self._consumer.assignment():
            at[place.partition] = self._consumer.committed(place) or 0
            self._consumer.seek(place, at[place.partition])
        return at

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self._producer.send(self._route.output, value, partition=partition)

    def send_offsets(self, offsets: dict[int, int]) -> None:
        places = {
            TopicPartition(self._route.input, partition): OffsetAndMetadata(at, "", -1)
            for partition, at in offsets.items()
        }
        self._producer.send_offsets_to_transaction(places, self._consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def renew(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
        self._producer = kafka.KafkaProducer(
            **self._config, transactional_id=self._route.transactional_id, linger_ms=2
        )
        _keep_requests(self._producer)
        self._producer.init_transactions()

    def close(self) -> None:
        self._producer.close()
        self._consumer.close(autocommit=False)


def _keep_requests(producer: kafka.KafkaProducer) -> None:
    """Fix a bug of the library (3.0.12): its sender drops the current transactional request if
    waiting for the coordinator's connection raises, and its caller waits for ever. The sender keeps
    the request if that wait returns False."""
    client = producer._sender._client
    await_ready = client.await_ready

    def ready(*arguments: Any, **options: Any) -> bool:
        try:
            return bool(await_ready(*arguments, **options))
        except KafkaConnectionError:
            return False

    client.await_ready = ready


def read(servers: str, topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield committed records of the output, with their partitions, without end."""
    options = {**_QUICK, "group_id": None, "isolation_level": "read_committed"}
    consumer = insist(lambda: kafka.KafkaConsumer(bootstrap_servers=servers, **options), silently)
    places = [TopicPartition(topic, index) for index in range(partitions)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    while True:
        for records in consumer.poll(timeout_ms=500).values():
            for each in records:
                yield each.partition, each.value
