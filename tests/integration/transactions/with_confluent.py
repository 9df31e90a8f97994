"""confluent-kafka (librdkafka) copies records from input to output, and reads the output."""

from collections.abc import Callable, Iterator

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from tests.integration.transactions.transformer import (
    IN_TIME_S,
    Route,
    Taken,
)
from tests.support.group_protocols import settings
from tests.support.waiting import call_within

GIVEN_UP_AFTER_S = 8.0
"""Version 2.16 waits in send_offsets_to_transaction regardless of the timeout if it takes a dead
broker, which the metadata no longer contain, for the group's coordinator."""
MESSAGE_TIMEOUT_MS = 20_000
"""An abort purges the queue, and then waits for responses of a leader that has moved until this
timeout, which is the whole transaction timeout by default."""
_QUICK = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 500,
    # When no broker is left the library makes other objects for the same brokers, but
    # keeps the old one as the group's coordinator: send_offsets_to_transaction waits for ever.
    "metadata.recovery.strategy": "none",
}


class Worker:
    """See `transformer.Worker`."""

    def __init__(self, servers: str, route: Route) -> None:
        self._route = route
        self._given_up: list[confluent_kafka.Producer] = []
        self._config = {"bootstrap.servers": servers, **_QUICK}
        self._consumer = confluent_kafka.Consumer(
            {
                **self._config,
                "group.id": self._route.group,
                **settings(self._route.protocol),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        # With a listener, partitions are given up in a poll alone, and never in a transaction.
        self._consumer.subscribe([self._route.input], on_revoke=self._on_revoke)
        self._has_given_up = False
        self.renew()

    def _on_revoke(self, _consumer: object, _partitions: object) -> None:
        self._has_given_up = True

    def poll(self, limit: int) -> list[Taken] | None:
        records = [
            Taken(each.partition(), each.offset(), each.value())
            for each in self._consumer.consume(limit, 0.1)
            if each.error() is None
        ]
        return None if self._has_given_up else records

    def rewind(self) -> dict[int, int]:
        self._has_given_up = False
        while not (assigned := self._consumer.assignment()):
            self._consumer.consume(1, 0.1)
        at = {}
        for place in self._consumer.committed(assigned, timeout=5):
            if place.error is not None:
                raise KafkaException(place.error)
            at[place.partition] = max(place.offset, 0)
            self._consumer.seek(
                TopicPartition(self._route.input, place.partition, at[place.partition])
            )
        return at

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self._producer.produce(self._route.output, value, partition=partition)

    def send_offsets(self, offsets: dict[int, int]) -> None:
        places = [
            TopicPartition(self._route.input, partition, at) for partition, at in offsets.items()
        ]
        member = self._consumer.consumer_group_metadata()
        producer = self._producer

        def send() -> None:
            producer.send_offsets_to_transaction(places, member, IN_TIME_S)

        try:
            call_within(GIVEN_UP_AFTER_S, lambda: _resumed(send))
        except TimeoutError:
            # It stays in use, and must not be freed.
            self._given_up.append(producer)
            raise

    def commit(self) -> None:
        _resumed(lambda: self._producer.commit_transaction(IN_TIME_S))

    def abort(self) -> None:
        if self._producer in self._given_up:
            raise RuntimeError("the producer cannot go on")
        _resumed(lambda: self._producer.abort_transaction(IN_TIME_S))

    def renew(self) -> None:
        self._producer = confluent_kafka.Producer(
            {
                **self._config,
                "transactional.id": self._route.transactional_id,
                "linger.ms": 2,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            }
        )
        _resumed(lambda: self._producer.init_transactions(IN_TIME_S))

    def close(self) -> None:
        self._consumer.close()


def _resumed(call: Callable[[], None]) -> None:
    """Make a call, and repeat it when the library's error is retriable."""
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def read(servers: str, topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield committed records of the output, with their partitions, without end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            **_QUICK,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    first = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([TopicPartition(topic, index, first) for index in range(partitions)])
    while True:
        for each in consumer.consume(500, 0.1):
            if each.error() is None:
                yield each.partition(), each.value()
