"""Produce over a real partition, with a coordinator whose word is the test's to give."""

import asyncio
from typing import Any

from barnabas.broker.coordination.admission import ProduceAdmission
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.server.context import ANONYMOUS, RequestContext
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.validator import Origin
from tests.unit.broker.handlers.fake_gate import FakeGate
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

PRODUCER = Producer(1000, 4)
T0 = ("t", 0)
TV1, TV2 = 11, 12


class Names:
    """A metadata cache that knows names by topic id, and nothing else."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {TOPIC_ID: "t"}

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)


class Rig:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.gate = FakeGate()
        self.names = Names()
        admission = ProduceAdmission(replicas.manager, self.gate)  # type: ignore[arg-type]
        self.handler = ProduceHandler(
            replicas.manager,
            self.names,  # type: ignore[arg-type]
            admission,
        )

    def send(
        self,
        *records: "bytes | memoryview | tuple[str, int, bytes]",
        version: int = TV2,
        acks: int = -1,
        key: str | None = "x",
    ) -> Any:
        """One Produce; what is not placed is for t-0."""
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
        return self.handler.handle(request, context)

    def mark(self, epoch: int = PRODUCER.epoch) -> None:
        """An abort marker."""
        marker = build_marker(
            Marker(ControlType.ABORT, 0),
            offset=0,
            timestamp=1_000,
            producer_id=PRODUCER.producer_id,
            producer_epoch=epoch,
        )
        self.replicas.manager.partition("t", 0).append_as_leader(
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
        ErrorCode(partition.error_code).name
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
