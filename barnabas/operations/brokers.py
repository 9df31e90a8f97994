"""The live brokers with their partitions, as rows."""

from barnabas.client.cluster import Cluster
from barnabas.operations.answers.cluster import Broker
from barnabas.protocol.messages.describe_cluster import DescribeClusterResponse


async def broker_rows(cluster: Cluster, described: DescribeClusterResponse) -> list[Broker]:
    """Return a row for each live broker, by id; the metadata of the cluster is refreshed."""
    await cluster.refresh()
    rows = [row for topic in cluster.topics.values() for row in topic.description.partitions]
    return [
        Broker(
            broker=each.broker_id,
            address=f"{each.host}:{each.port}",
            rack=each.rack,
            controller=each.broker_id == described.controller_id,
            leaders=sum(row.leader_id == each.broker_id for row in rows),
            replicas=sum(each.broker_id in row.replica_nodes for row in rows),
        )
        for each in sorted(described.brokers, key=lambda each: each.broker_id)
    ]
