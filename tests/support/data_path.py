"""A broker in the test's own loop, and a client for the requests of the data path."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from barnabas.broker.app import Broker
from barnabas.broker.loop.offload import InlineOffload, Offload
from barnabas.broker.platform import system_platform
from barnabas.client.connection import Connection
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.messages import create_topics, fetch, list_offsets, produce
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from tests.support.mem_files import MemFiles

NOW_MS = 1_700_000_000_000


def make_broker(
    directory: Path, properties: Mapping[str, str] = MappingProxyType({}), **keys: object
) -> Broker:
    """Return a broker that is not started; `keys` are Kafka's, with underscores for the dots."""
    own = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **{key.replace("_", "."): str(value) for key, value in keys.items()},
    }
    return Broker(BrokerConfig.from_properties(own | dict(properties)))


@asynccontextmanager
async def running(
    directory: Path, properties: Mapping[str, str] = MappingProxyType({}), **keys: object
) -> AsyncIterator[Broker]:
    broker = make_broker(directory, properties, **keys)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator["Client"]:
    connection = await Connection.open("127.0.0.1", broker.port, timeout=5)
    try:
        yield Client(connection)
    finally:
        await connection.close()


def batch(*values: bytes, **options: Any) -> bytes:
    """Return a batch of records without keys."""
    records = [Record(index, NOW_MS + index, None, value, ()) for index, value in enumerate(values)]
    return build_batch(records, **options)


def creation(
    topic: str, partitions: int, configs: Mapping[str, str]
) -> create_topics.CreateTopicsRequest:
    """Return the request for a topic; `configs` have underscores for the dots."""
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[
                    create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=5000,
    )


class Client:
    """A client whose requests are about one topic, and mostly one partition."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def create(self, topic: str = "t", partitions: int = 1, **configs: str) -> bytes:
        """Create a topic, and return its id."""
        request = creation(topic, partitions, configs)
        answer = await self.connection.request(create_topics.API, request)
        assert answer.topics[0].error_code == 0, answer
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    async def produce(
        self,
        records: bytes | None,
        *,
        topic: str = "t",
        index: int = 0,
        acks: int = -1,
        version: int = 12,
        timeout_ms: int = 5000,
        **fields: Any,
    ) -> Any:
        """Produce to one partition, and return the partition's answer."""
        topic_id = fields.pop("topic_id", bytes(16))
        data = produce.PartitionProduceData(index=index, records=records)
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                produce.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
            ],
            **fields,
        )
        answer = await self.connection.request(produce.API, request, version=version)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        *,
        topic: str = "t",
        index: int = 0,
        version: int = 12,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        **fields: Any,
    ) -> Any:
        """Fetch one partition, and return the whole answer."""
        partition = fetch.FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=fields.pop("leader_epoch", -1),
            last_fetched_epoch=fields.pop("last_fetched_epoch", -1),
        )
        topic_id = fields.pop("topic_id", bytes(16))
        request = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=fields.pop("min_bytes", 1),
            topics=[fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
            **fields,
        )
        return await self.connection.request(fetch.API, request, version=version)

    async def fetch_one(self, offset: int, **options: Any) -> Any:
        """Fetch one partition, and return the partition's answer."""
        answer = await self.fetch(offset, **options)
        return answer.responses[0].partitions[0]

    async def list_offset(self, timestamp: int, *, version: int = 11, **fields: Any) -> Any:
        """Send ListOffsets for one partition, and return the partition's answer."""
        partition = list_offsets.ListOffsetsPartition(
            partition_index=fields.pop("index", 0),
            timestamp=timestamp,
            current_leader_epoch=fields.pop("leader_epoch", -1),
        )
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(name=fields.pop("topic", "t"), partitions=[partition])
            ],
            **fields,
        )
        answer = await self.connection.request(list_offsets.API, request, version=version)
        return answer.topics[0].partitions[0]


@asynccontextmanager
async def running_in_memory(
    files: MemFiles, offload: Offload | None = None, **keys: object
) -> AsyncIterator[Broker]:
    """Run a broker whose disk is `files`."""
    config = BrokerConfig.from_properties(
        {
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **{key.replace("_", "."): str(value) for key, value in keys.items()},
        }
    )
    platform = replace(
        system_platform(config),
        files=files,
        offload=offload or InlineOffload(),
        cleaner=InlineCleaner(files),
    )
    broker = Broker(config, platform=platform)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
