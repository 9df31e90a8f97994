"""The observers of every workload: they request metadata of all brokers and read followers."""

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import metadata
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, Partition
from barnabas.verify.wire.reader import Reader
from barnabas.verify.wire.replicas import serves_followers

NAME: Final = "watcher"
PAUSE: Final = 0.05
"""Seconds between two requests: a restarted broker is asked as early as clients ask it."""

READ_PAUSE: Final = 0.02


async def watch_topics(context: Context, topics: Sequence[str]) -> None:
    """Write the topics that each broker knows to the history, whenever they change."""
    cluster = context.cluster()
    told: dict[int, list[str]] = {}
    while await context.pause(PAUSE):
        try:
            if not cluster.nodes:
                await cluster.refresh(())
        except (KafkaError, BrokerUnreachable, TimeoutError):
            continue
        for node in cluster.nodes:
            try:
                unknown = await _unknown(cluster, node, topics)
            except (KafkaError, BrokerUnreachable, TimeoutError):
                # An unreachable broker denies no topic.
                continue
            if unknown != told.get(node):
                told[node] = unknown
                known = [name for name in topics if name not in unknown]
                value = {"node": node, "known": known, "unknown": unknown}
                context.history.note(NAME, "topics", INFO, value)


async def _unknown(cluster: Cluster, node: int, topics: Sequence[str]) -> list[str]:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )
    answer = await cluster.ask(metadata.API, request, node=node)
    denied = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return sorted(topic.name for topic in answer.topics if topic.error_code == denied)


async def read_followers(context: Context, partitions: Sequence[Partition]) -> None:
    """Read partitions from their followers, with either isolation level (KIP-392).

    Returns at once if no partition has followers, or followers do not serve consumers.
    """
    cluster = context.cluster()
    while await context.pause(READ_PAUSE):
        try:
            if not await _has_followers(cluster, partitions):
                return
        except (KafkaError, BrokerUnreachable, TimeoutError):
            continue
        break
    async with asyncio.TaskGroup() as tasks:
        for node in sorted(cluster.nodes):
            tasks.create_task(_read_from(context, node, partitions))


async def _read_from(context: Context, node: int, partitions: Sequence[Partition]) -> None:
    """Read from one broker; each broker has its own reader, so a slow one delays no other."""
    name = f"follower-reader-{node}"
    chance = context.random(name)
    cluster = context.cluster()
    readers = {}
    for at in partitions:
        committed = chance.random() < 0.5
        readers[at] = Reader(context.history, cluster, name, committed=committed)
        readers[at].assign({at: 0})
    while await context.pause(READ_PAUSE):
        at = chance.choice(partitions)
        try:
            if node in await _followers(cluster, at):
                await readers[at].poll_from(node, max_wait=0.0)
        except (KafkaError, BrokerUnreachable, TimeoutError):
            # The follower lags, does not know its leader yet, or is away: try another one.
            cluster.topics.clear()


async def _has_followers(cluster: Cluster, partitions: Sequence[Partition]) -> bool:
    described = [(await cluster.topic(name)).description for name, _ in dict(partitions).items()]
    replicated = any(len(row.replica_nodes) > 1 for each in described for row in each.partitions)
    return replicated and await serves_followers(cluster)


async def _followers(cluster: Cluster, at: Partition) -> list[int]:
    description = (await cluster.topic(at[0])).description
    return [
        int(node)
        for row in description.partitions
        if row.partition_index == at[1]
        for node in row.isr_nodes
        if node != row.leader_id
    ]
