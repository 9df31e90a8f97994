"""Produce over a real partition, with a coordinator whose answers the test controls."""

import asyncio
from typing import Any

from barnabas.broker.handlers.produce import handle
from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions.produce_verification import ProduceVerification
from barnabas.broker.transactions.producer_id_limit import ProducerIdLimit
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.security.principal import ANONYMOUS
from barnabas.storage.origin import Origin
from tests.unit.broker.handlers.fake_verifier import FakeVerifier
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

PRODUCER = Producer(1000, 4)
T0 = ("t", 0)
TV1, TV2 = 11, 12


class Names:
    """A metadata cache that has only names by topic id."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {TOPIC_ID: "t"}

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)


class Rig:
    def __init__(self, replicas: Replicas, keys: dict[str, str] | None = None) -> None:
        """`keys` are those of the broker."""
        self.replicas = replicas
        self.verifier = FakeVerifier()
        self.names = Names()
        self.config = BrokerConfig.from_properties({"log.dirs": "/data"} | (keys or {}))
        self.parts = (
            replicas.manager,
            self.names,  # type: ignore[arg-type]
            ProduceVerification(replicas.manager, self.verifier),  # type: ignore[arg-type]
            ProducerIdLimit(lambda: self.config, replicas.clock.monotonic),
        )

    def send(
        self,
        *records: "bytes | memoryview | tuple[str, int, bytes]",
        version: int = TV2,
        acks: int = -1,
        key: str | None = "x",
    ) -> Any:
        """Send one Produce; records without a partition are for t-0."""
        topics = []
        for each in records:
            topic, index, data = each if isinstance(each, tuple) else ("t", 0, each)
            topic_id = TOPIC_ID if topic == "t" else topic.encode() * 16
            topics.append(
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=index, records=data)],
                )
            )
        request = ProduceRequest(
            transactional_id=key, acks=acks, timeout_ms=5000, topic_data=topics
        )
        context = RequestContext(
            0, version, 0, "test", ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1, 1_000
        )
        return handle(*self.parts, request, context)

    def mark(self, epoch: int = PRODUCER.epoch) -> None:
        """Append an abort marker."""
        marker = TxnMarker(PRODUCER.producer_id, epoch, 0, False).packed(1_000)[0]
        self.replicas.manager.partition("t", 0).append(
            bytearray(marker), now_ms=1_000, origin=Origin.COORDINATOR
        )

    @property
    def values(self) -> list[bytes | None]:
        log = self.replicas.manager.partition("t", 0).log
        data = log.read(0, 1 << 24, limit=log.log_end_offset).read_bytes()
        return [
            record.value
            for pos, header in iter_headers(data)
            if not header.is_control
            for record in iter_records(data, pos, header)
        ]


def batch(
    *values: bytes,
    sequence: int = 0,
    producer: Producer = PRODUCER,
    transactional: bool = True,
) -> bytes:
    return build_batch(
        [Record(at, 1_000, b"k", value) for at, value in enumerate(values)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def codes(answer: Any) -> list[str]:
    return [
        ErrorCode.of(partition.error_code).name
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
