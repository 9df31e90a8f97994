"""`barnabas topics`: list, describe, create, alter and delete topics."""

from collections.abc import Collection
from typing import Any

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.common import Target, cluster_options
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, TopicInfo
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.partition_admin import PartitionAdmin, Reassignment
from barnabas.protocol.config_resources import ConfigOperation, ResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.types import uuid_text

_UNDER_REPLICATED, _UNDER_MIN_ISR, _AT_MIN_ISR, _UNAVAILABLE = _FILTERS = (
    "under-replicated",
    "under-min-isr",
    "at-min-isr",
    "unavailable",
)
_UNHEALTHY_COLUMNS = ["topic", "partition", "leader", "replicas", "isr", "lacks"]


@click.group()
def topics() -> None:
    """List, describe, create, alter and delete topics."""


@topics.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@cluster_options
def list_topics(target: Target, internal: bool) -> None:
    """List the cluster's topics."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        await cluster.refresh()
        return [
            {
                "topic": topic.name,
                "partitions": len(topic.leaders),
                "replicas": _replication_factor(topic),
                "id": uuid_text(topic.topic_id),
            }
            for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name)
            if internal or not topic.is_internal
        ]

    target.show(["topic", "partitions", "replicas", "id"], target.run(work))


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(p.replica_nodes) for p in topic.description.partitions), default=0)


@topics.command()
@click.argument("name", required=False)
@click.option("--under-replicated", is_flag=True, help="Only partitions with replicas out of sync.")
@click.option("--under-min-isr", is_flag=True, help="Only with an ISR below min.insync.replicas.")
@click.option("--at-min-isr", is_flag=True, help="Only with an ISR of exactly min.insync.replicas.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a live leader.")
@cluster_options
def describe(target: Target, name: str | None, **wanted: bool) -> None:
    """Show a topic's partitions: leader, replicas, ISR, offsets.

    With a filter, show only the partitions that match it, of topic NAME or of all topics.
    """
    filters = [each for each in _FILTERS if wanted[each.replace("-", "_")]]
    if filters:
        target.show(_UNHEALTHY_COLUMNS, target.run(lambda c: _find_unhealthy(c, name, filters)))
    elif name is None:
        raise click.UsageError("name a topic, or give a filter such as --under-replicated")
    else:
        _describe(target, name)


def _describe(target: Target, name: str) -> None:
    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        topic = await cluster.topic(name)
        wanted = [TopicPartition(name, p) for p, leader in topic.leaders.items() if leader >= 0]
        first = await find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        last = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
        return [
            {
                "partition": p.partition_index,
                "leader": p.leader_id,
                "epoch": p.leader_epoch,
                "replicas": p.replica_nodes,
                "isr": p.isr_nodes,
                "start": first[key].offset if key in first else None,
                "end": last[key].offset if key in last else None,
            }
            for p in sorted(topic.description.partitions, key=lambda p: p.partition_index)
            if (key := (name, p.partition_index))
        ]

    columns = ["partition", "leader", "epoch", "replicas", "isr", "start", "end"]
    target.show(columns, target.run(work), title=name)


async def _find_unhealthy(
    cluster: Cluster, name: str | None, filters: Collection[str]
) -> list[dict[str, Any]]:
    """Return a row for each partition that matches a filter, with the filters that it matches.

    With `name` None the partitions of all topics are checked.
    """
    names = None if name is None else [(await cluster.topic(name)).name]
    await cluster.refresh(names)
    moving: dict[TopicPartition, Reassignment] = {}
    if _UNDER_REPLICATED in filters:
        # Replicas that a reassignment is still adding do not count as missing.
        moving = await PartitionAdmin(cluster).reassignments()
    rows = []
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name):
        min_isr = None
        if _UNDER_MIN_ISR in filters or _AT_MIN_ISR in filters:
            min_isr = await _min_isr(cluster, topic.name)
        for row in sorted(topic.description.partitions, key=lambda row: row.partition_index):
            running = moving.get(TopicPartition(topic.name, row.partition_index))
            replicas = set(row.replica_nodes) - set(running.adding if running is not None else ())
            found = {
                _UNDER_REPLICATED: len(row.isr_nodes) < len(replicas),
                _UNDER_MIN_ISR: min_isr is not None and len(row.isr_nodes) < min_isr,
                _AT_MIN_ISR: len(row.isr_nodes) == min_isr,
                _UNAVAILABLE: row.leader_id not in cluster.nodes,
            }
            lacks = [each for each in _FILTERS if each in filters and found[each]]
            if lacks:
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": row.partition_index,
                        "leader": row.leader_id,
                        "replicas": row.replica_nodes,
                        "isr": row.isr_nodes,
                        "lacks": lacks,
                    }
                )
    return rows


async def _min_isr(cluster: Cluster, topic: str) -> int:
    entries = await Admin(cluster).describe_configs(ResourceType.TOPIC, topic)
    return next(int(each.value or 1) for each in entries if each.name == "min.insync.replicas")


@topics.command()
@click.argument("name")
@click.option("-p", "--partitions", default=-1, help="Partitions; -1: num.partitions.")
@click.option("-r", "--replication-factor", default=-1, help="Replicas; -1: the broker's default.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@cluster_options
def create(
    target: Target, name: str, partitions: int, replication_factor: int, configs: tuple[str, ...]
) -> None:
    """Create a topic."""
    overrides = parse_pairs(configs)
    row = target.administer(
        lambda admin: admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=overrides,
        )
    )
    target.done(
        f"Created {name} with {row.num_partitions} partition(s).",
        topic=name,
        id=uuid_text(row.topic_id),
        partitions=row.num_partitions,
    )


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete(target: Target, name: str, yes: bool) -> None:
    """Delete a topic with all its records."""
    if not yes:
        click.confirm(f"Delete {name} and all its records?", abort=True, err=True)
    target.administer(lambda admin: admin.delete_topic(name))
    target.done(f"Deleted {name}.", topic=name, deleted=True)


@topics.command()
@click.argument("name")
@click.option("-p", "--partitions", type=int, help="Raise the number of partitions to this.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option("-d", "--delete-config", "deleted", multiple=True, metavar="KEY", help="Reset a key.")
@cluster_options
def alter(
    target: Target,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Add partitions to a topic or change its configuration."""
    changes = [(key, ConfigOperation.SET, value) for key, value in parse_pairs(configs).items()]
    resets = [(key, ConfigOperation.DELETE, None) for key in deleted]
    if partitions is None and not changes and not resets:
        raise click.UsageError(
            "give at least one change: --partitions, --config or --delete-config"
        )

    async def work(admin: Admin) -> None:
        if partitions is not None:
            await admin.create_partitions(name, partitions)
        if changes or resets:
            await admin.alter_configs(ResourceType.TOPIC, name, [*changes, *resets])

    target.administer(work)
    target.done(f"Altered {name}.", topic=name, altered=True)


@topics.command("delete-records")
@click.argument("name")
@click.option("-p", "--partition", type=int, required=True)
@click.option(
    "-o", "--before", type=int, default=-1, help="First offset to keep; -1: the end of the log."
)
@cluster_options
def delete_records(target: Target, name: str, partition: int, before: int) -> None:
    """Delete the records of a partition below an offset."""
    done = target.administer(
        lambda admin: admin.delete_records({TopicPartition(name, partition): before})
    )
    start = done[TopicPartition(name, partition)]
    target.done(
        f"{name}-{partition} now starts at {start}.", topic=name, partition=partition, start=start
    )
