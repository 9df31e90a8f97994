"""The syntax of topics and partitions on the command line."""

from collections.abc import Callable
from typing import Any

import click

from barnabas.cli import arguments
from barnabas.cli.names import topics
from barnabas.operations.partitions import PartitionArgument

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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
