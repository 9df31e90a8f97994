"""Price orders exactly once with asyncio. Client: barnabas.client.

    python examples/exactly_once_asyncio.py localhost:9092

Where the cluster has the newer transaction protocol (KIP-890), each transaction has an epoch of its
own, so a late message of one transaction cannot end up in the next. On a new broker it prints:

    4 orders priced in transactions of the newer protocol: True
    2 apples cost 4
    1 pears cost 3
    5 plums cost 5
    3 apples cost 6
"""

import asyncio
import sys

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import AbortableError, TransactionalProducer
from barnabas.protocol.topic_partition import TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
SOURCE, TARGET = "examples.asyncio.unpriced", "examples.asyncio.priced"
ORDERS = [b"2 apples", b"1 pears", b"5 plums", b"3 apples"]
PRICES = {b"apples": 2, b"pears": 3, b"plums": 1}


def price(order: bytes) -> bytes:
    """Return an order with its price."""
    count, fruit = order.split()
    return b"%b cost %d" % (order, int(count) * PRICES[fruit])


async def price_orders(
    member: GroupMember, consumer: Consumer, producer: TransactionalProducer
) -> int:
    """Price the orders of one poll in one transaction; return their number."""
    await member.ensure_joined()
    orders = await consumer.poll()
    if not orders:
        return 0
    try:
        async with producer.transaction():
            for order in orders:
                await producer.send(TARGET, price(order.value or b""), key=order.key)
            offsets = {TopicPartition(o.topic, o.partition): o.offset + 1 for o in orders}
            await producer.send_offsets_to_transaction(offsets, member.metadata)
            newer = producer.speaks_newer_protocol
    except AbortableError:
        # The transaction is aborted: read its orders again. Any other error ends the program, and
        # the next one with this transactional id goes on from the committed offsets.
        await member.rewind()
        return 0
    print(f"{len(orders)} orders priced in transactions of the newer protocol: {newer}")
    return len(orders)


async def read_committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """Return the first committed records of a topic with one partition."""
    consumer = Consumer(cluster)
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    found: list[bytes] = []
    while len(found) < count:
        found += [each.value or b"" for each in await consumer.poll()]
    return found


async def main() -> None:
    """Produce the orders, price them, and print the result."""
    async with Cluster(SERVERS) as cluster:
        async with Producer(cluster) as orders:
            for order in ORDERS:
                await orders.send(SOURCE, order)
        consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
        async with (
            GroupMember(cluster, consumer, "pricing-asyncio", [SOURCE]) as member,
            TransactionalProducer(cluster, "pricing-asyncio-1") as producer,
        ):
            await producer.init_transactions()
            done = 0
            while done < len(ORDERS):
                done += await price_orders(member, consumer, producer)
        for order in await read_committed(cluster, TARGET, len(ORDERS)):
            print(order.decode())


asyncio.run(main())
