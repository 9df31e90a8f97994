"""Topics of a cluster, and what librdkafka's read_committed consumer shows of them."""

import time
from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import Cluster

DEADLINE = 30.0


def create(cluster: Cluster, topic: str, partitions: int, replicas: int = 3) -> str:
    """Create a topic, and return its name when every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(DEADLINE)
    for partition in range(partitions):
        cluster.leader_of(topic, partition)
    return topic


def ends_of(cluster: Cluster, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the end of each partition, behind the records of open transactions."""
    # A read_committed consumer of librdkafka reports the last stable offset as the end.
    with closing(_consumer(cluster, "read_uncommitted")) as consumer:
        return {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), DEADLINE)[1]
            for each in partitions
        }


def committed(cluster: Cluster, topic: str, partitions: Iterable[int]) -> list[bytes]:
    """Return the records that read_committed shows before the end that read_uncommitted has.

    It waits until the transactions that are open now have ended.
    """
    ends = ends_of(cluster, topic, partitions)
    values: list[bytes] = []
    with closing(_consumer(cluster, "read_committed")) as consumer:
        consumer.assign([TopicPartition(topic, each, 0) for each in ends])
        deadline = time.monotonic() + DEADLINE
        while ends and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                values.append(message.value())
            for place in consumer.position([TopicPartition(topic, each) for each in ends]):
                if place.offset >= ends[place.partition]:
                    del ends[place.partition]
    assert not ends, f"no consumer can read to the end of {sorted(ends)}"
    return values


def _consumer(cluster: Cluster, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "no group: nothing is committed",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
