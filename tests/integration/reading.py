"""Read a topic of two partitions with our consumer."""

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.offsets import EARLIEST


async def read(
    cluster: Cluster, topic: str, count: int, *, committed: bool = True
) -> list[Message]:
    """Return the first `count` messages of both partitions."""
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1, read_committed=committed))
    consumer.assign({(topic, 0): EARLIEST, (topic, 1): EARLIEST})
    messages: list[Message] = []
    while len(messages) < count:
        messages += await consumer.poll()
    return messages


async def values(
    cluster: Cluster, topic: str, count: int, *, committed: bool = True
) -> list[bytes]:
    messages = await read(cluster, topic, count, committed=committed)
    return sorted(message.value or b"" for message in messages)
