"""`barnabas brokers`: list and describe the brokers of a cluster."""

from typing import Any

import click

from barnabas.cli import names
from barnabas.cli.commands.log_dirs import ONLINE, directories
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.describe_cluster import DescribeClusterResponse


@click.group(cls=Group)
def brokers() -> None:
    """List and describe the brokers of a cluster."""


@brokers.command("list")
@cluster_options
def list_brokers(target: Target) -> None:
    """List the live brokers with the partitions that they lead and have."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        return await broker_rows(cluster, await Admin(cluster).describe_cluster())

    target.show(
        ["broker", "address", "rack", "controller", "leaders", "replicas"], target.run(work)
    )


@brokers.command()
@click.argument("broker", type=int, shell_complete=names.brokers)
@cluster_options
def describe(target: Target, broker: int) -> None:
    """Show a broker: address, rack, partitions and disk space."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        rows = await broker_rows(cluster, await Admin(cluster).describe_cluster())
        found = [row for row in rows if row["broker"] == broker]
        if not found:
            raise click.ClickException(f"no live broker has the id {broker}")
        places = await directories(cluster, broker)
        return {
            **found[0],
            "log_dirs": [each["log_dir"] for each in places],
            "offline_log_dirs": [each["log_dir"] for each in places if each["state"] != ONLINE],
            "bytes": sum(each["bytes"] for each in places),
        }

    target.show_one(target.run(work))


async def broker_rows(cluster: Cluster, described: DescribeClusterResponse) -> list[dict[str, Any]]:
    """Return a row for each live broker, by id; the metadata of the cluster is refreshed."""
    await cluster.refresh()
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
