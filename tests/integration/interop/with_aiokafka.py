"""The commands of the tests, carried out by aiokafka."""

import asyncio
from typing import Any

import aiokafka
import aiokafka.admin
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.integration.interop.member import DEADLINE
from tests.integration.interop.message import Message

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


def keywords(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the library's spelling of Kafka's names."""
    found = {key.replace(".", "_"): value for key, value in options.items()}
    if "partition_assignment_strategy" in found:
        found["partition_assignment_strategy"] = [ASSIGNORS[found["partition_assignment_strategy"]]]
    return found


def write(
    servers: str, topic: str, codec: str, messages: list[Message], options: dict[str, Any]
) -> list[int]:
    async def write() -> list[int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            enable_idempotence=True,
            **keywords(options),
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    partition=0,
                    key=each.key,
                    value=each.value,
                    headers=list(each.headers),
                    timestamp_ms=each.timestamp,
                )
                for each in messages
            ]
            return [(await each).offset for each in sent]

    return asyncio.run(asyncio.wait_for(write(), DEADLINE))


def read(
    servers: str, topic: str, count: int, since: int | None, options: dict[str, Any]
) -> list[Message]:
    async def read() -> list[Message]:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=None, **keywords(options)
        ) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            if since is None:
                await consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, (await consumer.offsets_for_times({place: since}))[place][0])
            records = [await consumer.getone() for _ in range(count)]
        return [
            Message(each.key, each.value, tuple(each.headers), each.timestamp) for each in records
        ]

    return asyncio.run(asyncio.wait_for(read(), DEADLINE))


class Consumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """See `member.Consumer`."""

    def __init__(self, servers: str, topic: str, options: dict[str, Any]) -> None:
        self.revoked = 0
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._start(servers, topic, keywords(options)))

    async def _start(self, servers: str, topic: str, options: dict[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, **options)
        consumer.subscribe([topic], listener=self)
        await consumer.start()
        return consumer

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked += len(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Do nothing: the assignment is asked of the consumer itself."""

    def poll(self) -> list[str]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=20))
        return [each.value.decode() for records in polled.values() for each in records]

    def owned(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def lag(self) -> int:
        return self._runner.run(self._lag())

    async def _lag(self) -> int:
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        return sum([end - await self._consumer.position(place) for place, end in ends.items()])

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class Administrator:
    """An administrator's calls; the library has fewer of them than the others."""

    def __init__(self, servers: str) -> None:
        self._runner = asyncio.Runner()
        self._admin = self._runner.run(self._start(servers))

    async def _start(self, servers: str) -> aiokafka.admin.AIOKafkaAdminClient:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
        await client.start()
        return client

    def create_topic(self, topic: str, partitions: int) -> None:
        new = aiokafka.admin.NewTopic(topic, partitions, 1)
        (answered,) = self._runner.run(self._admin.create_topics([new])).topic_errors
        if answered[1] != 0:
            raise RuntimeError(answered)

    def topics(self) -> list[str]:
        return list(self._runner.run(self._admin.list_topics()))

    def partitions(self, topic: str) -> int:
        (described,) = self._runner.run(self._admin.describe_topics([topic]))
        return len(described["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        wanted = {topic: aiokafka.admin.NewPartitions(partitions)}
        self._runner.run(self._admin.create_partitions(wanted))

    def delete_topic(self, topic: str) -> None:
        self._runner.run(self._admin.delete_topics([topic]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        wanted = {place: aiokafka.admin.RecordsToDelete(before)}
        return int(self._runner.run(self._admin.delete_records(wanted))[place])

    def cluster(self) -> dict[str, Any]:
        described = self._runner.run(self._admin.describe_cluster())
        nodes = [node["node_id"] for node in described["brokers"]]
        return {"nodes": nodes, "controller": described["controller_id"]}

    def groups(self) -> list[str]:
        return [name for name, _ in self._runner.run(self._admin.list_consumer_groups())]

    def group(self, group: str) -> dict[str, Any]:
        (answer,) = self._runner.run(self._admin.describe_consumer_groups([group]))
        _, _, state, _, _, members, *_ = answer.groups[0]
        return {"state": state, "members": len(members)}

    def offsets(self, group: str) -> dict[int, int]:
        found = self._runner.run(self._admin.list_consumer_group_offsets(group))
        return {place.partition: found[place].offset for place in found}

    def close(self) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()
