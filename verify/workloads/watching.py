"""Asks every broker for the topics of the run, beside whatever workload."""

from collections.abc import Sequence
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import metadata
from barnabas.verify.context import Context
from barnabas.verify.history import INFO

NAME: Final = "watcher"
PAUSE: Final = 0.05
"""Between two looks, in s: a broker that came back is asked as early as clients ask it."""


async def watch_topics(context: Context, topics: Sequence[str]) -> None:
    """Writes down what each broker knows of the topics whenever that has changed."""
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
                # A broker that is away denies nothing.
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
