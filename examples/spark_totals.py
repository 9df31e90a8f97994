"""Sum orders on Spark, and write the totals exactly once. Client: the data source `barnabas`.

    python examples/spark_totals.py localhost:9092

It needs Java 17 and `pip install 'barnabas[spark]'`, and the brokers need
`transaction.two.phase.commit.enable=true`. A repeated run with the same `batchId` changes nothing.
On a new broker it prints:

    apples: 5
    pears: 1
    plums: 5
"""

import asyncio
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import barnabas.pipeline
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
SOURCE, TARGET = "examples.spark.orders", "examples.spark.totals"
ORDERS = {"apples": [2, 3], "pears": [1], "plums": [5]}


async def prepare() -> None:
    """Create both topics, and produce the orders; do nothing if they exist."""
    async with Cluster(SERVERS) as cluster, Producer(cluster) as producer:
        try:
            await Admin(cluster).create_topic(TARGET, partitions=1)
            await Admin(cluster).create_topic(SOURCE, partitions=2)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return
        for fruit, counts in ORDERS.items():
            for count in counts:
                await producer.send(SOURCE, b"%d" % count, key=fruit.encode())


def write_totals(spark: SparkSession) -> None:
    """Read all orders, sum them by fruit, and write the totals as batch 1."""
    servers = {"kafka.bootstrap.servers": SERVERS}
    orders = spark.read.format("barnabas").options(**servers, subscribe=SOURCE).load()
    count = orders.value.cast("string").cast("int")
    totals = orders.groupBy(orders.key).agg(sql.sum(count).cast("string").alias("value"))
    writer = totals.write.format("barnabas").mode("append").options(**servers)
    writer.options(topic=TARGET, sinkId="example-totals", batchId="1").save()


async def read_totals() -> dict[str, str]:
    """Return the committed totals."""
    totals: dict[str, str] = {}
    async with Cluster(SERVERS) as cluster:
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition(TARGET, 0): EARLIEST})
        while len(totals) < len(ORDERS):
            for record in await consumer.poll():
                totals[(record.key or b"").decode()] = (record.value or b"").decode()
    return totals


def main() -> None:
    """Run the job on a local Spark, and print the totals."""
    asyncio.run(prepare())
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    spark = builder.getOrCreate()
    barnabas.pipeline.register(spark)
    write_totals(spark)
    spark.stop()
    for fruit, total in sorted(asyncio.run(read_totals()).items()):
        print(f"{fruit}: {total}")


main()
