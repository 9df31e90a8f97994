"""Replicas and leaders move in a cluster on ZooKeeper; its nodes are written as Kafka's are."""

import json
from pathlib import Path
from typing import Any

from barnabas.broker.cluster import znodes
from barnabas.cli import reassignments
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.reassignment_plan import Plan
from tests.integration.loaded_topic import DEADLINE, PARTITIONS, Writer, arrival, move, read_all
from tests.integration.zookeeper.brokers_in_loop import cluster, servers
from tests.support.zookeeper import ZooKeeperServer


async def node(server: ZooKeeperServer, chroot: str, path: str) -> Any:
    """Return the content of a node, as any client of ZooKeeper reads it."""
    from kazoo.client import KazooClient

    client = KazooClient(server.connect + chroot)
    client.start(DEADLINE)
    try:
        return json.loads(client.get(path)[0])
    finally:
        client.stop()
        client.close()


async def test_node_has_old_and_new_replicas_during_a_reassignment_under_load(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with (
        cluster(server, chroot, tmp_path, min_insync_replicas="1") as brokers,
        Client(servers(brokers), timeout=DEADLINE) as client,
    ):
        await Admin(client).create_topic("t", partitions=PARTITIONS, replication_factor=2)
        start: Plan = {("t", index): (1, 2) for index in range(PARTITIONS)}
        await move(client, start)
        writer = Writer(client, "t")
        there: Plan = {("t", index): (3, 1) for index in range(PARTITIONS)}
        # More than one Fetch response holds: the throttle allows no second one.
        await writer.written(1000)
        await reassignments.execute(
            client, there, throttle=1, additional=False, allow_factor_change=True
        )
        topic = await node(server, chroot, znodes.topic_path("t"))
        await reassignments.clear_throttle(client, ["t"])
        assert topic["adding_replicas"] == {str(index): [3] for index in range(PARTITIONS)}
        assert topic["removing_replicas"] == {str(index): [2] for index in range(PARTITIONS)}
        await arrival(client, there)
        await writer.stop()
        assert await read_all(client, "t") == writer.acknowledged
        topic = await node(server, chroot, znodes.topic_path("t"))
        assert set(map(tuple, topic["partitions"].values())) == {(3, 1)}
        assert topic["adding_replicas"] == topic["removing_replicas"] == {}
        await PartitionAdmin(client).elect_leaders()
        state = await node(server, chroot, znodes.state_path("t", 0))
        assert state["leader"] == 3
