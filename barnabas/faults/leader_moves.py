"""Requests by which a test moves a leader, as an administrator does."""

from barnabas.client.cluster import Cluster, check
from barnabas.faults.store import Store
from barnabas.protocol.messages import alter_partition_reassignments, elect_leaders


async def move_leader(cluster: Cluster, store: Store, topic: str, partition: int, to: int) -> None:
    """Make the broker `to`, which must have a replica, the preferred leader and then the leader."""
    replicas = store.replicas(topic, partition)
    if to not in replicas:
        raise ValueError(f"broker {to} has no replica of {topic}-{partition}, of {replicas}")
    if replicas[0] != to:
        await _prefer(cluster, topic, partition, [to, *(each for each in replicas if each != to)])
        await store.until(lambda: store.replicas(topic, partition)[0] == to or None)
    await store.until(lambda: to in store.state(topic, partition).isr or None)
    if store.state(topic, partition).leader != to:
        await _elect(cluster, topic, partition)
    await store.until(lambda: store.state(topic, partition).leader == to or None)


async def _prefer(cluster: Cluster, topic: str, partition: int, replicas: list[int]) -> None:
    wanted = alter_partition_reassignments.ReassignablePartition(
        partition_index=partition, replicas=replicas
    )
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[wanted])]
    )

    async def attempt() -> None:
        answer = await cluster.ask_controller(alter_partition_reassignments.API, request)
        check(answer.error_code, answer.error_message)
        row = answer.responses[0].partitions[0]
        check(row.error_code, row.error_message)

    await cluster.retrying(attempt)


async def _elect(cluster: Cluster, topic: str, partition: int) -> None:
    request = elect_leaders.ElectLeadersRequest(
        election_type=elect_leaders.PREFERRED,
        topic_partitions=[elect_leaders.TopicPartitions(topic=topic, partitions=[partition])],
    )

    async def attempt() -> None:
        answer = await cluster.ask_controller(elect_leaders.API, request)
        check(answer.error_code)
        row = answer.replica_election_results[0].partition_result[0]
        check(row.error_code, row.error_message)

    await cluster.retrying(attempt)
