"""The syntax of topics and partitions on the command line."""

from collections.abc import Callable, Iterable
from typing import Any

import click

from barnabas.cli import arguments
from barnabas.cli.names import topics
from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PartitionArgument = tuple[str, int | None]
"""A topic and one of its partitions; None stands for all its partitions."""


throttle_option = click.option(
    "--throttle",
    type=arguments.size,
    metavar="SIZE",
    help="Limit a second for each broker, such as 50MB.",
)


def topic_or_partition(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> PartitionArgument:
    """Parse TOPIC or TOPIC:PARTITION; a click callback."""
    return _parse(value, "TOPIC[:PARTITION]", whole=True)


def topics_or_partitions(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> list[PartitionArgument]:
    """Parse any number of TOPIC, TOPIC:PARTITION or TOPIC:PARTITION,PARTITION; a click callback."""
    found = []
    for each in value:
        topic, colon, indexes = each.partition(":")
        named = (f"{topic}{colon}{index}" for index in indexes.split(","))
        found += [_parse(text, "TOPIC[:PARTITION,...]", whole=True) for text in named]
    return found


def _partitions(metavar: str, *, required: bool) -> Decorator:
    return click.argument(
        "named",
        metavar=metavar,
        nargs=-1,
        required=required,
        callback=topics_or_partitions,
        shell_complete=topics,
    )


any_partitions = _partitions("[TOPIC[:PARTITION]]...", required=False)
some_partitions = _partitions("TOPIC[:PARTITION]...", required=True)


def one_partition(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> PartitionArgument:
    """Parse TOPIC:PARTITION; a click callback."""
    return _parse(value, "TOPIC:PARTITION", whole=False)


def _parse(value: str, syntax: str, *, whole: bool) -> PartitionArgument:
    topic, colon, index = value.partition(":")
    if whole and topic and not colon:
        return topic, None
    if not topic or not index.isascii() or not index.isdigit():
        raise click.BadParameter(f"{value!r} is not {syntax}")
    return topic, int(index)


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


async def every_partition(cluster: Cluster) -> list[TopicPartition]:
    """Return all partitions of all topics, of the internal ones too."""
    await cluster.refresh()
    return sorted(
        TopicPartition(topic.name, index)
        for topic in cluster.topics.values()
        for index in topic.leaders
    )
