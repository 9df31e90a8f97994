"""Transactions that a test leaves open, hanging or without a marker."""

import asyncio
import uuid
from pathlib import Path

import confluent_kafka

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.protocol.records.batch import iter_headers
from tests.support.command_line import DEADLINE, Cli
from tests.support.newer_producer import NewerProducer
from tests.support.waiting import until


def older_producer(servers: str, transactional_id: str) -> confluent_kafka.Producer:
    """Return a producer of the older protocol.

    Its thread outlives the test, and must not write to the standard error of later tests."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(DEADLINE)
    return producer


def refused(cli: Cli, *arguments: str) -> str:
    """Return the one line on standard error of a command that fails."""
    code, out, errors = cli.run("transactions", *arguments)
    assert (code, out) == (1, b"")
    (line,) = errors.decode().splitlines()
    return line


def committed_values(servers: str, topic: str) -> list[bytes]:
    """Return the values of partition 0 for a read_committed consumer."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        values = []
        while True:
            message = consumer.poll(DEADLINE)
            assert message is not None
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return values
            values.append(message.value())
    finally:
        consumer.close()


def hanging(servers: str, topic: str, *, committed_before: bool) -> int:
    """Leave a transaction open that its coordinator never learns of; return its start offset."""
    transactional_id = f"x-{uuid.uuid4().hex[:8]}"
    older = older_producer(servers, transactional_id)
    if committed_before:
        older.begin_transaction()
        older.produce(topic, b"good", partition=0)
        older.commit_transaction(DEADLINE)
    producer = NewerProducer(servers, transactional_id, version=11)
    producer.producer_id, producer.epoch = identity(servers, transactional_id)
    producer.sequences[topic, 0] = int(committed_before)
    producer.send(topic, 0, b"late")
    return 2 if committed_before else 0


def identity(servers: str, transactional_id: str) -> tuple[int, int]:
    """Return producer id and epoch, which librdkafka does not show."""

    async def described() -> tuple[int, int]:
        async with Cluster(servers) as cluster:
            row = await TransactionAdmin(cluster).describe(transactional_id)
            return row.producer_id, row.producer_epoch

    return asyncio.run(described())


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def lose_marker(data: Path, partition: str = "t-0") -> None:
    """Cut a log as a power loss does that comes before the marker reaches the disk."""
    (log,) = (data / partition).glob("*.log")
    written = log.read_bytes()
    *_, (at, last) = iter_headers(memoryview(written))
    assert last.is_control
    log.write_bytes(written[:at])
    for snapshot in (data / partition).glob("*.snapshot"):
        snapshot.unlink()
    (data / CLEAN_SHUTDOWN).unlink()


def wait_until_over(cli: Cli) -> None:
    def over() -> bool:
        row = cli.json("transactions", "describe", "x")
        return str(row["state"]).startswith("Complete")

    until(over)
