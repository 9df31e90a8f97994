"""`barnabas topics`: list, describe, analyze, create, alter and delete topics."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final, get_args

import click

from barnabas.cli import names
from barnabas.cli.arguments import parse_configs, parse_offset_or_time
from barnabas.cli.common import UNHEALTHY, Target, cluster_options
from barnabas.cli.help import Group
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, TopicInfo
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.partition_admin import PartitionAdmin, Reassignment
from barnabas.operations.answers.model import fields_of
from barnabas.operations.answers.topics import (
    AlteredTopic,
    CreatedTopic,
    DeletedTopic,
    DescribedTopic,
    Lack,
    Partition,
    SampledPartition,
    Topic,
    TrimmedPartition,
    UnhealthyPartition,
)
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.types import uuid_text

_FILTERS: Final[tuple[Lack, ...]] = get_args(Lack)
_PATTERN: Final = frozenset("*?[")
"""Characters that no name of a topic has."""


@click.group(cls=Group)
def topics() -> None:
    """List, describe, analyze, create, alter and delete topics."""


@topics.command("list")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1, shell_complete=names.topics)
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@cluster_options
def list_topics(target: Target, patterns: tuple[str, ...], internal: bool) -> None:
    """List the cluster's topics, or those that a PATTERN such as 'shop-*' matches.

    Internal topics are there with --internal, and for a PATTERN that begins with __.
    """

    async def work(cluster: Cluster) -> list[Topic]:
        await cluster.refresh()
        return [
            Topic(
                topic=topic.name,
                partitions=len(topic.leaders),
                replicas=_replication_factor(topic),
                id=uuid_text(topic.topic_id),
            )
            for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name)
            if _is_listed(topic, patterns, internal)
        ]

    target.show(Topic, target.run(work))


def _is_listed(topic: TopicInfo, patterns: Sequence[str], internal: bool) -> bool:
    """Whether a pattern, or none given, matches a topic, and internal ones are meant too."""
    meant = [
        each for each in patterns or "*" if internal or not topic.is_internal or each[:2] == "__"
    ]
    return any(fnmatchcase(topic.name, each) for each in meant)


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(p.replica_nodes) for p in topic.description.partitions), default=0)


@topics.command()
@click.argument("name", required=False, shell_complete=names.topics)
@click.option("--under-replicated", is_flag=True, help="Only partitions with replicas out of sync.")
@click.option("--under-min-isr", is_flag=True, help="Only with an ISR below min.insync.replicas.")
@click.option("--at-min-isr", is_flag=True, help="Only with an ISR of exactly min.insync.replicas.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a live leader.")
@cluster_options
def describe(target: Target, name: str | None, **wanted: bool) -> None:
    """Show a topic's partitions: leader, replicas, ISR, offsets.

    With a filter, show only the partitions that match it, of topic NAME or of all topics. The exit
    code is 3 then if there is one.
    """
    filters = [each for each in _FILTERS if wanted[each.replace("-", "_")]]
    if filters:
        rows = target.run(lambda cluster: _find_unhealthy(cluster, name, filters))
        target.show(UnhealthyPartition, rows)
        if rows:
            raise click.exceptions.Exit(UNHEALTHY)
    elif name is None:
        raise click.UsageError("name a topic, or give a filter such as --under-replicated")
    else:
        _describe(target, name)


def _describe(target: Target, name: str) -> None:
    async def work(cluster: Cluster) -> DescribedTopic:
        topic = await cluster.topic(name)
        wanted = [TopicPartition(name, p) for p, leader in topic.leaders.items() if leader >= 0]
        first = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        last = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
        rows = [
            Partition(
                partition=p.partition_index,
                leader=p.leader_id,
                epoch=p.leader_epoch,
                replicas=p.replica_nodes,
                isr=p.isr_nodes,
                start=first[key].offset if key in first else None,
                end=last[key].offset if key in last else None,
            )
            for p in sorted(topic.description.partitions, key=lambda p: p.partition_index)
            if (key := (name, p.partition_index))
        ]
        return DescribedTopic(topic=name, id=uuid_text(topic.topic_id), partitions=rows)

    described = target.run(work)
    if target.as_json:
        target.answer(described)
    else:
        target.show(Partition, described.partitions, title=name)


async def _find_unhealthy(
    cluster: Cluster, name: str | None, filters: Collection[Lack]
) -> list[UnhealthyPartition]:
    """Return a row for each partition that matches a filter, with the filters that it matches.

    With `name` None the partitions of all topics are checked.
    """
    names = None if name is None else [(await cluster.topic(name)).name]
    await cluster.refresh(names)
    moving: dict[TopicPartition, Reassignment] = {}
    if "under-replicated" in filters:
        # Replicas that a reassignment is still adding do not count as missing.
        moving = await PartitionAdmin(cluster).reassignments()
    min_isr_of: dict[str, int] = {}
    if "under-min-isr" in filters or "at-min-isr" in filters:
        min_isr_of = await Admin(cluster).min_isr(cluster.topics)
    rows = []
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name):
        min_isr = min_isr_of.get(topic.name)
        for row in sorted(topic.description.partitions, key=lambda row: row.partition_index):
            running = moving.get(TopicPartition(topic.name, row.partition_index))
            replicas = set(row.replica_nodes) - set(running.adding if running is not None else ())
            found: dict[Lack, bool] = {
                "under-replicated": len(row.isr_nodes) < len(replicas),
                "under-min-isr": min_isr is not None and len(row.isr_nodes) < min_isr,
                "at-min-isr": len(row.isr_nodes) == min_isr,
                "unavailable": row.leader_id not in cluster.nodes,
            }
            lacks = [each for each in _FILTERS if each in filters and found[each]]
            if lacks:
                rows.append(
                    UnhealthyPartition(
                        topic=topic.name,
                        partition=row.partition_index,
                        leader=row.leader_id,
                        replicas=row.replica_nodes,
                        isr=row.isr_nodes,
                        lacks=lacks,
                    )
                )
    return rows


@topics.command()
@click.argument("name", shell_complete=names.topics)
@click.option(
    "-n",
    "--records",
    default=10_000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="Size of the sample.",
)
@cluster_options
def analyze(target: Target, name: str, records: int) -> None:
    """Show rates, sizes, keys, batches and compression of a topic's newest committed records.

    The rate is that of the timestamps. STORED_TO_PAYLOAD is the size of the batches by that of
    keys, values and headers: above 1 batches cost more than compression saves.
    """
    # Imported here: the other commands read no records.
    from barnabas.cli.topic_sample import analyzed, sample

    found = analyzed(name, target.run(lambda cluster: sample(cluster, name, records)))
    if target.as_json:
        target.answer(found)
        return
    fields = fields_of(found)
    target.show_one({key: fields[key] for key in fields if key != "partitions"}, title=name)
    click.echo()
    target.show(SampledPartition, found.partitions, table=True)


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-p", "--partitions", default=-1, help="Partitions; -1: num.partitions.")
@click.option("-r", "--replication-factor", default=-1, help="Replicas; -1: the broker's default.")
@names.key_option("-c", "--config", "configs", help="Set a key.")
@click.option("--if-not-exists", is_flag=True, help="Leave topics that exist as they are.")
@cluster_options
def create(
    target: Target,
    names: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics.

    `topics create orders -p 12 -c retention.ms=7d -c segment.bytes=512MB`
    """
    overrides = parse_configs(configs)

    async def work(admin: Admin) -> None:
        for name in dict.fromkeys(names):
            try:
                row = await admin.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    configs=overrides,
                )
            except KafkaError as error:
                if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                there = CreatedTopic(topic=name, created=False, id=None, partitions=None)
                target.done(f"{name} exists already.", there)
                continue
            made = CreatedTopic(
                topic=name,
                created=True,
                id=uuid_text(row.topic_id),
                partitions=row.num_partitions,
            )
            target.done(f"Created {name} with {row.num_partitions} partition(s).", made)

    target.administer(work)


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=names.topics)
@click.option("--if-exists", is_flag=True, help="Do not fail for topics that do not exist.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete(target: Target, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records. A NAME may be a pattern.

    `topics delete 'test-*' --yes`
    """

    async def work(cluster: Cluster) -> None:
        admin, found = Admin(cluster), await _matching(cluster, names, if_exists)
        if found and not yes:
            listed = ", ".join(found)
            click.confirm(f"Delete {listed} and all records in it?", abort=True, err=True)
        for name in found:
            await admin.delete_topic(name)
            target.done(f"Deleted {name}.", DeletedTopic(topic=name, deleted=True))

    target.run(work)


async def _matching(cluster: Cluster, names: Sequence[str], if_exists: bool) -> list[str]:
    """Return the topics with these names or patterns; without `if_exists` each must have one."""
    await cluster.refresh()
    found: list[str] = []
    for name in names:
        matching = [name] if name in cluster.topics else []
        if _PATTERN.intersection(name):
            listed = (each.name for each in cluster.topics.values() if not each.is_internal)
            matching = sorted(each for each in listed if fnmatchcase(each, name))
        if not matching and not if_exists:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        found += matching
    return list(dict.fromkeys(found))


@topics.command()
@click.argument("name", shell_complete=names.topics)
@click.option("-p", "--partitions", type=int, help="Raise the number of partitions to this.")
@names.key_option("-c", "--config", "-s", "--set", "configs", help="Set a key.")
@names.key_option("-d", "--delete-config", "deleted", metavar="KEY", help="Reset a key.")
@cluster_options
def alter(
    target: Target,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Add partitions to a topic or change its configuration."""
    changes = [(key, ConfigOperation.SET, value) for key, value in parse_configs(configs).items()]
    resets = [(key, ConfigOperation.DELETE, None) for key in deleted]
    if partitions is None and not changes and not resets:
        raise click.UsageError(
            "give at least one change: --partitions, --config or --delete-config"
        )

    async def work(admin: Admin) -> None:
        if partitions is not None:
            await admin.create_partitions(name, partitions)
        if changes or resets:
            await admin.alter_configs(ConfigResourceType.TOPIC, name, [*changes, *resets])

    target.administer(work)
    target.done(f"Altered {name}.", AlteredTopic(topic=name, altered=True))


@topics.command("delete-records")
@click.argument("name", shell_complete=names.topics)
@click.option("-p", "--partition", type=int, help="Only this partition.")
@click.option(
    "-o",
    "--before",
    default="-1",
    show_default=True,
    metavar="OFFSET|TIME",
    help="First offset, or first time, to keep; -1: the end of the log.",
)
@cluster_options
def delete_records(target: Target, name: str, partition: int | None, before: str) -> None:
    """Delete the records of a topic below an offset, or older than a time.

    `topics delete-records orders --before -7d`
    """
    offset, timestamp = parse_offset_or_time(before)

    async def work(cluster: Cluster) -> dict[TopicPartition, int]:
        admin, known = Admin(cluster), (await cluster.topic(name)).leaders
        wanted = [TopicPartition(name, each) for each in sorted(known)]
        if partition is not None:
            wanted = [TopicPartition(name, partition)]
        if offset is not None:
            return await admin.delete_records(dict.fromkeys(wanted, offset))
        found = await find_offsets(cluster, dict.fromkeys(wanted, timestamp))
        # Without a record that late all are older: -1 is the end of the log.
        return await admin.delete_records({key: row.offset for key, row in found.items()})

    for key, start in target.run(work).items():
        target.done(
            f"{name}-{key.partition} now starts at {start}.",
            TrimmedPartition(topic=name, partition=key.partition, start=start),
        )
