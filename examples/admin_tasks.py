"""Administrate topics and groups: create, change, reset, delete. Client: kafka-python.

    python examples/admin_tasks.py localhost:9092

`barnabas topics`, `barnabas configs` and `barnabas groups` do the same on the command line. On a
new broker it prints:

    created with 2 partitions
    now 3 partitions
    retention.ms is 3600000
    the group has read up to offset 5
    the group begins again at offset 2
    records below offset 4 are deleted, the first is at 4
    deleted
"""

import sys
import time
from collections.abc import Callable

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
TOPIC, GROUP = "examples.admin", "admin-example"
FIRST = TopicPartition(TOPIC, 0)


def wait_until(is_done: Callable[[], bool]) -> None:
    """Wait until a change, which is acknowledged, has reached the broker that is asked."""
    deadline = time.monotonic() + 30
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError("the change has not reached the broker")
        time.sleep(0.05)


def partitions(admin: KafkaAdminClient) -> int:
    """Return the number of partitions of the topic."""
    (topic,) = admin.describe_topics([TOPIC])
    return len(topic["partitions"])


def manage_topic(admin: KafkaAdminClient) -> None:
    """Create the topic, add a partition, and change its retention."""
    options = {"num_partitions": 2, "configs": {"retention.ms": "60000"}}
    admin.create_topics({TOPIC: options}, wait_for_metadata=True)
    print(f"created with {partitions(admin)} partitions")
    admin.create_partitions({TOPIC: 3})
    wait_until(lambda: partitions(admin) == 3)
    print(f"now {partitions(admin)} partitions")
    resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"retention.ms": "3600000"})
    admin.alter_configs([resource])
    wait_until(lambda: retention(admin) != "60000")
    print(f"retention.ms is {retention(admin)}")


def retention(admin: KafkaAdminClient) -> str:
    """Return `retention.ms` of the topic."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)])
    return found["topic"][TOPIC]["retention.ms"]["value"]


def read_in_group() -> None:
    """Produce five records, and consume them in the group."""
    producer = KafkaProducer(bootstrap_servers=SERVERS)
    for number in range(5):
        producer.send(TOPIC, b"%d" % number, partition=0).get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=SERVERS, group_id=GROUP, enable_auto_commit=False)
    consumer.assign([FIRST])
    consumer.seek(FIRST, 0)
    for _ in range(5):
        next(consumer)
    consumer.commit()
    consumer.close()


def manage_group(admin: KafkaAdminClient) -> None:
    """Show the committed offset of the group, and reset it. The group must have no members."""
    print(f"the group has read up to offset {committed(admin)}")
    admin.alter_group_offsets(GROUP, {FIRST: OffsetAndMetadata(2, "", -1)})
    print(f"the group begins again at offset {committed(admin)}")


def committed(admin: KafkaAdminClient) -> int:
    """Return the committed offset of the group."""
    return admin.list_group_offsets(GROUP)[GROUP][FIRST].offset


def delete(admin: KafkaAdminClient) -> None:
    """Delete the first records, then the group and the topic."""
    admin.delete_records({FIRST: 4})
    consumer = KafkaConsumer(bootstrap_servers=SERVERS)
    first = consumer.beginning_offsets([FIRST])[FIRST]
    consumer.close()
    print(f"records below offset 4 are deleted, the first is at {first}")
    admin.delete_groups([GROUP])
    admin.delete_topics([TOPIC])
    wait_until(lambda: TOPIC not in admin.list_topics())
    print("deleted")


def main() -> None:
    """Run all tasks."""
    admin = KafkaAdminClient(bootstrap_servers=SERVERS)
    manage_topic(admin)
    read_in_group()
    manage_group(admin)
    delete(admin)
    admin.close()


main()
