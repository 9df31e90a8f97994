"""`barnabas benchmark eos`: consume and produce in transactions (as in KIP-609)."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import click

from barnabas.cli.commands.benchmark.figures import rates
from barnabas.cli.commands.benchmark.properties import ConsumerProperties, ProducerProperties
from barnabas.cli.common import Target, cluster_options, progress
from barnabas.cli.help import Command
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, Message
from barnabas.client.group import GroupMember
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.operations.answers.benchmark import EosFigures
from barnabas.operations.answers.model import fields_of
from barnabas.protocol.topic_partition import TopicPartition


@click.command(cls=Command)
@click.option("--input-topic", required=True, help="Consume from this topic.")
@click.option("--output-topic", required=True, help="Produce to this topic.")
@click.option(
    "-n", "--num-records", default=100_000, show_default=True, help="Stop after this many."
)
@click.option("--throughput", default=-1.0, help="Maximum records per second; -1: no limit.")
@click.option(
    "--transactional-id", default="performance-producer-default-transactional-id", show_default=True
)
@click.option(
    "--consumer-group-id", default="performance-consumer-default-group-id", show_default=True
)
@click.option(
    "--poll-timeout",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Milliseconds.",
)
@click.option("--pre-registration", is_flag=True, help="Register partitions and group (KIP-609).")
@click.option("--consumer-config", type=click.File(), help="Properties of the consumer.")
@click.option("--consumer-props", multiple=True, metavar="NAME=VALUE", help="Override the file.")
@click.option("--producer-config", type=click.File(), help="Properties of the producer.")
@click.option("--producer-props", multiple=True, metavar="NAME=VALUE", help="Override the file.")
@cluster_options
def eos(
    target: Target,
    input_topic: str,
    output_topic: str,
    num_records: int,
    throughput: float,
    transactional_id: str,
    consumer_group_id: str,
    poll_timeout: int,
    pre_registration: bool,
    consumer_config: Any,
    consumer_props: Sequence[str],
    producer_config: Any,
    producer_props: Sequence[str],
) -> None:
    """Copy records from one topic to another, each poll in a transaction with its offsets.

    Stops early if no record arrives for --timeout seconds. A transaction has at most
    `max.poll.records` (500) records; p50 and p99 are the latency of the commit.
    """
    read = ConsumerProperties.parse(consumer_config, consumer_props)
    write = ProducerProperties.parse(producer_config, producer_props)

    async def work(cluster: Cluster) -> EosFigures:
        consumer = Consumer(cluster, read.settings(poll_timeout / 1000))
        producer = TransactionalProducer(
            cluster,
            transactional_id,
            write.settings(),
            transaction_timeout=write.transaction_timeout,
        )
        member = GroupMember(
            cluster,
            consumer,
            consumer_group_id,
            [input_topic],
            instance_id=read.instance_id,
            session_timeout=read.session_timeout,
        )
        await cluster.retrying(lambda: cluster.topic(output_topic, create=True))
        async with producer, member:
            await producer.init_transactions()
            await member.ensure_joined()
            copy = _Copy(cluster, consumer, producer, member, output_topic)
            copy.registers = consumer_group_id if pre_registration else None
            with progress("eos", num_records) as advance:
                async for messages in copy.polls(num_records, target.timeout):
                    for part in _parts(messages, read.max_poll_records):
                        await copy.transaction(part)
                        advance(copy.records)
                        await copy.pace(throughput)
            return copy.figures()

    target.show_one(target.run(work))


class _Copy:
    """The consume-transform-produce loop of a stream processor, with its measurements."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        producer: TransactionalProducer,
        member: GroupMember,
        output: str,
    ) -> None:
        self.registers: str | None = None
        """The group to register in advance with the partitions (KIP-609); None: no registration."""
        self.records = 0
        self._cluster = cluster
        self._consumer = consumer
        self._producer = producer
        self._member = member
        self._output = output
        self._width = len(cluster.topics[output].leaders)
        self._size = 0
        self._commits: list[float] = []
        self._requests = cluster.requests
        self._polls = 0
        self._began = self._last = time.perf_counter()

    async def polls(self, count: int, patience: float) -> AsyncIterator[Sequence[Message]]:
        """Yield records of each poll: `count` in all, or until none arrives for `patience` s."""
        while self.records < count:
            await self._member.ensure_joined()
            self._polls += 1
            messages = await self._consumer.poll()
            if messages:
                self._last = time.perf_counter()
                yield messages[: count - self.records]
            elif time.perf_counter() - self._last > patience:
                return

    async def transaction(self, messages: Sequence[Message]) -> None:
        """Write records in a transaction, each to the partition of its number modulo the count."""
        offsets = {TopicPartition(m.topic, m.partition): m.offset + 1 for m in messages}
        targets = [m.partition % self._width for m in messages]
        registered = None
        if self.registers is not None:
            registered = {TopicPartition(self._output, partition) for partition in targets}
        await self._producer.begin_transaction(registered, self.registers)
        for message, partition in zip(messages, targets, strict=True):
            await self._producer.send(
                self._output, message.value, key=message.key, partition=partition
            )
            self._size += len(message.key or b"") + len(message.value or b"")
        await self._producer.send_offsets_to_transaction(offsets, self._member.metadata)
        began = time.perf_counter()
        await self._producer.commit_transaction()
        self._commits.append(time.perf_counter() - began)
        self.records += len(messages)
        self._last = time.perf_counter()

    async def pace(self, throughput: float) -> None:
        """Wait to limit the rate to `throughput` records/s; negative: no limit."""
        if throughput > 0:
            ahead = self.records / throughput - (time.perf_counter() - self._began)
            await asyncio.sleep(max(0.0, ahead))

    def figures(self) -> EosFigures:
        """Return the figures of the copy."""
        seconds = max(self._last - self._began, 1e-9)
        count = len(self._commits)
        requests = self._cluster.requests - self._requests - self._polls
        return EosFigures(
            **fields_of(rates("eos", self.records, self._size, seconds, self._commits)),
            transactions=count,
            transactions_per_s=round(count / seconds, 1),
            requests_per_transaction=round(requests / count, 2) if count else None,
            retries=self._producer.retries,
        )


def _parts(messages: Sequence[Message], most: int) -> Iterator[Sequence[Message]]:
    for start in range(0, len(messages), most):
        yield messages[start : start + most]
