"""`barnabas brokers`: list and describe the brokers of a cluster."""

from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster


@click.group()
def brokers() -> None:
    """List and describe the brokers of a cluster."""


@brokers.command("list")
@cluster_options
def list_brokers(target: Target) -> None:
    """List the live brokers with the partitions that they lead and have."""
    target.show(
        ["broker", "address", "rack", "controller", "leaders", "replicas"],
        target.run(broker_rows),
    )


@brokers.command()
@click.argument("broker", type=int)
@cluster_options
def describe(target: Target, broker: int) -> None:
    """Show a broker: address, rack, partitions and disk space."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        found = [row for row in await broker_rows(cluster) if row["broker"] == broker]
        if not found:
            raise click.ClickException(f"no live broker has the id {broker}")
        directories = await Admin(cluster).describe_log_dirs(broker)
        return {
            **found[0],
            "log_dirs": [each.log_dir for each in directories],
            "offline_log_dirs": [each.log_dir for each in directories if each.error_code],
            "bytes": sum(
                row.partition_size
                for each in directories
                for topic in each.topics
                for row in topic.partitions
            ),
        }

    target.show_one(target.run(work))


async def broker_rows(cluster: Cluster) -> list[dict[str, Any]]:
    """Return a row for each live broker, by id."""
    await cluster.refresh()
    described = await Admin(cluster).describe_cluster()
    rows = [row for topic in cluster.topics.values() for row in topic.description.partitions]
    return [
        {
            "broker": each.broker_id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "controller": each.broker_id == described.controller_id,
            "leaders": sum(row.leader_id == each.broker_id for row in rows),
            "replicas": sum(each.broker_id in row.replica_nodes for row in rows),
        }
        for each in sorted(described.brokers, key=lambda each: each.broker_id)
    ]
