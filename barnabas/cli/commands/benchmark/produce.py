"""`barnabas benchmark produce`: produce, with or without transactions, and consume again."""

import asyncio
import os
import time

import click

from barnabas.cli import names
from barnabas.cli.commands.benchmark.figures import percentiles, rates
from barnabas.cli.common import Target, cluster_options, progress
from barnabas.cli.help import Command
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import Delivered, Producer, ProducerSettings
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.operations.answers.benchmark import ProduceFigures, Rates
from barnabas.operations.answers.model import fields_of, names_of
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.topic_partition import TopicPartition

_CODECS = {codec.name.lower(): codec for codec in Compression}


@click.command(cls=Command)
@click.argument("topic", default="barnabas-benchmark", shell_complete=names.topics)
@click.option("-n", "--records", default=100_000, show_default=True, help="Number of records.")
@click.option("-s", "--size", default=1024, show_default=True, help="Bytes of a value.")
@click.option("-B", "--batch-size", default=512 * 1024, show_default=True, help="Bytes of a batch.")
@click.option("-z", "--compression", type=click.Choice(list(_CODECS)), default="none")
@click.option("-a", "--acks", type=click.Choice(["all", "1", "0"]), default="all")
@click.option("--idempotence/--no-idempotence", default=True, show_default=True)
@click.option("--transactional-id", help="Produce in transactions of this id.")
@click.option(
    "--transaction-duration-ms",
    type=click.FloatRange(min=0),
    default=100.0,
    show_default=True,
    help="Interval between commits in ms; 0: after each record.",
)
@click.option("--pre-registration", is_flag=True, help="Register the partition first (KIP-609).")
@click.option("--keep", is_flag=True, help="Keep the topic afterwards.")
@cluster_options
def produce(
    target: Target,
    topic: str,
    records: int,
    size: int,
    batch_size: int,
    compression: str,
    acks: str,
    idempotence: bool,
    transactional_id: str | None,
    transaction_duration_ms: float,
    pre_registration: bool,
    keep: bool,
) -> None:
    """Produce records to TOPIC, consume them again, and print rates and latencies.

    TOPIC is created if it is not there, and deleted again if this command created it.
    """
    if pre_registration and transactional_id is None:
        raise click.UsageError("--pre-registration needs a --transactional-id")
    settings = ProducerSettings(
        acks=-1 if acks == "all" else int(acks),
        compression=_CODECS[compression],
        idempotent=idempotence,
        batch_size=batch_size,
    )

    async def work(cluster: Cluster) -> list[ProduceFigures]:
        admin = Admin(cluster)
        await cluster.refresh()
        created = topic not in cluster.topics
        if created:
            await admin.create_topic(topic, partitions=1)
        try:
            topic_partition = TopicPartition(topic, 0)
            start = (await find_offsets(cluster, {topic_partition: LATEST}))[topic_partition].offset
            value = os.urandom(size)
            if transactional_id is None:
                async with Producer(cluster, settings) as producer:
                    produced = await _produce(producer, topic, records, value)
            else:
                transactional = TransactionalProducer(cluster, transactional_id, settings)
                async with transactional:
                    await transactional.init_transactions()
                    registered = {topic_partition} if pre_registration else None
                    commits = _Commits(transactional, transaction_duration_ms / 1000, registered)
                    produced = await _produce(transactional, topic, records, value, commits)
            consumed = await _consume(cluster, topic, start, records)
        finally:
            if created and not keep:
                await admin.delete_topic(topic)
        return [produced, consumed]

    columns = names_of(Rates if transactional_id is None else ProduceFigures)
    target.show(columns, target.run(work))


class _Commits:
    """The transactions of the benchmark; each is committed after `duration` s."""

    def __init__(
        self,
        producer: TransactionalProducer,
        duration: float,
        registered: set[TopicPartition] | None,
    ) -> None:
        self._producer = producer
        self._duration = duration
        self._registered = registered
        self._began: float | None = None
        self.latencies: list[float] = []
        """The latency of each commit in s."""

    async def before_record(self) -> None:
        """Begin a transaction unless one is open."""
        if self._began is None:
            self._began = time.perf_counter()
            await self._producer.begin_transaction(self._registered)

    async def after_record(self) -> None:
        """Commit if the transaction has been open for its duration."""
        assert self._began is not None
        if time.perf_counter() - self._began >= self._duration:
            await self.commit()

    async def commit(self) -> None:
        """Commit the open transaction, if any."""
        if self._began is not None:
            began, self._began = time.perf_counter(), None
            await self._producer.commit_transaction()
            self.latencies.append(time.perf_counter() - began)


async def _produce(
    producer: Producer, topic: str, count: int, value: bytes, commits: _Commits | None = None
) -> ProduceFigures:
    latencies: list[float] = []
    with progress("produce", count) as advance:
        began = time.perf_counter()
        for index in range(count):
            if commits is not None:
                await commits.before_record()
            sent = time.perf_counter()
            delivered = await producer.send(topic, value, partition=0)

            def note(_: asyncio.Future[Delivered], sent: float = sent) -> None:
                latencies.append(time.perf_counter() - sent)

            delivered.add_done_callback(note)
            if commits is not None:
                await commits.after_record()
            if index % 500 == 0:
                # Let the event loop send: `send` does not wait while the buffer has room.
                await asyncio.sleep(0)
                advance(index)
        await (producer.flush() if commits is None else commits.commit())
        seconds = time.perf_counter() - began
        advance(count)
    p50_ms, p99_ms = percentiles(() if commits is None else commits.latencies)
    return ProduceFigures(
        **fields_of(rates("produce", count, count * len(value), seconds, latencies)),
        transactions=None if commits is None else len(commits.latencies),
        commit_p50_ms=p50_ms,
        commit_p99_ms=p99_ms,
    )


async def _consume(cluster: Cluster, topic: str, start: int, count: int) -> ProduceFigures:
    consumer = Consumer(
        cluster, FetchSettings(partition_max_bytes=4 * 1024 * 1024, offset_reset=EARLIEST)
    )
    consumer.assign({TopicPartition(topic, 0): start})
    seen = size = 0
    with progress("consume", count) as advance:
        began = time.perf_counter()
        while seen < count:
            messages = await consumer.poll()
            seen += len(messages)
            size += sum(len(message.value or b"") for message in messages)
            advance(seen)
        seconds = time.perf_counter() - began
    return ProduceFigures(**fields_of(rates("consume", seen, size, seconds)))
