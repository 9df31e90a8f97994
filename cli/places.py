"""Topics and partitions as people name them."""

from collections.abc import Iterable

import click

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Place = tuple[str, int | None]
"""A topic and one of its partitions, or all of them."""


def place(_context: click.Context, _parameter: click.Parameter, value: str) -> Place:
    """TOPIC or TOPIC:PARTITION; a click callback."""
    return _parse(value, "TOPIC[:PARTITION]", whole=True)


def places(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> list[Place]:
    """Any number of them; a click callback."""
    return [_parse(each, "TOPIC[:PARTITION]", whole=True) for each in value]


def one_partition(_context: click.Context, _parameter: click.Parameter, value: str) -> Place:
    """TOPIC:PARTITION; a click callback."""
    return _parse(value, "TOPIC:PARTITION", whole=False)


def _parse(value: str, wanted: str, *, whole: bool) -> Place:
    topic, colon, index = value.partition(":")
    if whole and topic and not colon:
        return topic, None
    if not topic or not index.isascii() or not index.isdigit():
        raise click.BadParameter(f"{value!r} is not {wanted}")
    return topic, int(index)


async def partitions_of(
    cluster: Cluster, named: Iterable[Place], *, leader: int | None = None
) -> list[TopicPartition]:
    """The partitions that are named, or of every topic where none is; those of `leader` only.

    Of what is not named, partitions that have no leader now are left out.
    """
    found: list[TopicPartition] = []
    for topic, index in named:
        leaders = (await cluster.topic(topic)).leaders
        if index is not None and index not in leaders:
            text = f"topic {topic} has no partition {index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        found += [(topic, each) for each in (leaders if index is None else [index])]
    if not found:
        await cluster.refresh()
        found = [
            (topic.name, index)
            for topic in cluster.topics.values()
            for index, led_by in topic.leaders.items()
            if led_by >= 0
        ]
    if leader is not None:
        found = [each for each in found if await cluster.leader(*each) == leader]
    return sorted(set(found))
