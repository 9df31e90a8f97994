"""`barnabas log-dirs`: the log directories of brokers, and moves of replicas between them."""

import time
from collections.abc import Iterable, Sequence

import click

from barnabas.cli import names
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.cli.partition_arguments import (
    any_partitions,
    some_partitions,
)
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import Outcomes, PartitionAdmin
from barnabas.operations.answers.log_dirs import LogDir, Move, Replica
from barnabas.operations.log_dirs import broker_ids, directories
from barnabas.operations.partitions import PartitionArgument, partitions_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_POLL_SECONDS = 0.5


@click.group(cls=Group)
def log_dirs() -> None:
    """Describe the log directories of brokers; move replicas between those of one broker."""


@log_dirs.command()
@any_partitions
@click.option("--broker", type=int, shell_complete=names.brokers, help="Only this broker.")
@cluster_options
def describe(target: Target, named: list[PartitionArgument], broker: int | None) -> None:
    """Show the log directories, or the log directory of each replica of partitions."""

    async def work(cluster: Cluster) -> Sequence[LogDir | Replica]:
        if not named:
            return await directories(cluster, broker)
        return await _replicas(cluster, await partitions_of(cluster, named), broker)

    target.show(Replica if named else LogDir, target.run(work), table=True)


@log_dirs.command()
@some_partitions
@click.option(
    "--broker",
    type=int,
    shell_complete=names.brokers,
    required=True,
    help="The broker of the replicas.",
)
@click.option("--to", "path", required=True, help="Target, as in `describe`.")
@click.option("--wait", is_flag=True, help="Wait for the end of the moves.")
@cluster_options
def move(
    target: Target, named: list[PartitionArgument], broker: int, path: str, wait: bool
) -> None:
    """Move replicas to another log directory of the same broker, or revert a running move."""

    async def work(cluster: Cluster) -> Outcomes:
        wanted = await partitions_of(cluster, named)
        return await PartitionAdmin(cluster).move_within(broker, dict.fromkeys(wanted, path))

    outcomes = target.run(work)
    begun = [partition for partition, error in outcomes.items() if error is None]
    if wait:
        _wait(target, begun, broker)
    rows = [
        Move(topic=topic, partition=index, result=_result(error, "there" if wait else "moving"))
        for (topic, index), error in sorted(outcomes.items(), key=lambda each: each[0])
    ]
    target.show(Move, rows)
    if len(begun) < len(outcomes):
        raise click.exceptions.Exit(1)


def _wait(target: Target, partitions: list[TopicPartition], broker: int) -> None:
    while any(
        row.state == "moving here"
        for row in target.run(lambda cluster: _replicas(cluster, partitions, broker))
    ):
        time.sleep(_POLL_SECONDS)


def _result(error: KafkaError | None, done: str) -> str:
    if error is None:
        return done
    if error.code is ErrorCode.REPLICA_NOT_AVAILABLE:
        return "the broker has no replica yet; it will be created there"
    return str(error)


async def _replicas(
    cluster: Cluster, wanted: Iterable[TopicPartition], broker: int | None
) -> list[Replica]:
    partitions = set(wanted)
    return [
        Replica(
            broker=node,
            topic=topic.name,
            partition=row.partition_index,
            log_dir=each.log_dir,
            state="moving here" if row.is_future_key else "here",
            bytes=row.partition_size,
            lag=row.offset_lag,
        )
        for node in await broker_ids(cluster, broker)
        for each in await Admin(cluster).describe_log_dirs(node)
        for topic in each.topics
        for row in topic.partitions
        if (topic.name, row.partition_index) in partitions
    ]
