"""`barnabas topics`."""

from typing import Any

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.unhealthy import COLUMNS, FILTERS, find_unhealthy
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, TopicInfo
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.config_resources import ConfigOperation, ResourceType
from barnabas.protocol.types import uuid_text


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
@click.option("--under-min-isr", is_flag=True, help="Only those below min.insync.replicas.")
@click.option("--at-min-isr", is_flag=True, help="Only those that can lose no further replica.")
@click.option("--unavailable", is_flag=True, help="Only those without a leader that is alive.")
@cluster_options
def describe(target: Target, name: str | None, **wanted: bool) -> None:
    """Show a topic's partitions: leader, replicas, in-sync set, offsets.

    Or only those that lack something, of one topic or of all.
    """
    filters = [each for each in FILTERS if wanted[each.replace("-", "_")]]
    if filters:
        target.show(COLUMNS, target.run(lambda c: find_unhealthy(c, name, filters)))
    elif name is None:
        raise click.UsageError("name a topic, or say what its partitions shall lack")
    else:
        _describe(target, name)


def _describe(target: Target, name: str) -> None:

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        topic = await cluster.topic(name)
        wanted = [(name, p) for p, leader in topic.leaders.items() if leader >= 0]
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


@topics.command()
@click.argument("name")
@click.option("-p", "--partitions", default=-1, help="Partitions; the broker's default without.")
@click.option("-r", "--replication-factor", default=-1, help="Replicas; the broker's default.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE")
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
        raise click.UsageError("say what to change: --partitions, --config or --delete-config")

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
@click.option("-o", "--before", type=int, default=-1, help="Offset to keep from; -1: the end.")
@cluster_options
def delete_records(target: Target, name: str, partition: int, before: int) -> None:
    """Delete a partition's records below an offset."""
    done = target.administer(lambda admin: admin.delete_records({(name, partition): before}))
    start = done[name, partition]
    target.done(
        f"{name}-{partition} now starts at {start}.", topic=name, partition=partition, start=start
    )
