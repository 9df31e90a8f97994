"""The lag of groups in records on Apache Kafka, counted by reading, against a real consumer."""

from pathlib import Path

from tests.support.kafka.node import Kafka
from tests.support.lag_histories import BROKER, compare

PARTITIONS = 50
"""The partitions of each of two topics: two hundred histories with both protocols."""
PROPERTIES = BROKER | {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.initial.task.delay.ms": "100",
}


async def test_counts_equal_those_of_a_consumer_in_random_histories(tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka", properties=PROPERTIES) as kafka:
        for level in (1, 2):
            await compare(kafka.bootstrap_servers, level, PARTITIONS)
