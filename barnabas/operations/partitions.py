"""The partitions that a person means: named ones, those of topics, or all."""

from collections.abc import Iterable

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

PartitionArgument = tuple[str, int | None]
"""A topic and one of its partitions; None stands for all its partitions."""


async def existing(cluster: Cluster, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those of the partitions that exist now; a group may have offsets of others."""
    wanted = list(wanted)
    await cluster.refresh({topic for topic, _ in wanted})
    return [
        each
        for each in wanted
        if each.topic in cluster.topics and each.partition in cluster.topics[each.topic].leaders
    ]


async def partitions_of(
    cluster: Cluster, named: Iterable[PartitionArgument], *, leader: int | None = None
) -> list[TopicPartition]:
    """Return the named partitions, or the partitions of all topics if none is named.

    With `leader`, only the partitions that this broker leads. If none is named, partitions without
    a leader are left out. Raises UNKNOWN_TOPIC_OR_PARTITION for a named partition that does not
    exist.
    """
    found: list[TopicPartition] = []
    for topic, index in named:
        leaders = (await cluster.topic(topic)).leaders
        if index is not None and index not in leaders:
            text = f"topic {topic} has no partition {index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        found += [TopicPartition(topic, each) for each in (leaders if index is None else [index])]
    if not found:
        every = await every_partition(cluster)
        found = [each for each in every if cluster.topics[each.topic].leaders[each.partition] >= 0]
    if leader is not None:
        found = [each for each in found if await cluster.leader(*each) == leader]
    return sorted(set(found))


def readable_partitions(cluster: Cluster) -> list[TopicPartition]:
    """Return the partitions that have a live leader as of the last refresh, except those of
    internal topics."""
    return [
        TopicPartition(topic.name, index)
        for topic in cluster.topics.values()
        if not topic.is_internal
        for index, leader in topic.leaders.items()
        if leader in cluster.nodes
    ]


async def every_partition(cluster: Cluster) -> list[TopicPartition]:
    """Return all partitions of all topics, of the internal ones too."""
    await cluster.refresh()
    return sorted(
        TopicPartition(topic.name, index)
        for topic in cluster.topics.values()
        for index in topic.leaders
    )
