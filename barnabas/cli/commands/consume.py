"""`barnabas consume`: print the records of topics as lines."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import click

from barnabas.cli import names
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.formats import Render, compile_format
from barnabas.cli.help import Command
from barnabas.cli.registered import Values, codec_options, values_of
from barnabas.cli.tables import escape_json, tell
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.group import GroupMember
from barnabas.client.last_records import find_last
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.client.producer import partition_for
from barnabas.operations.quantities import TIMES, parse_time
from barnabas.protocol.topic_partition import TopicPartition

_MAX_FETCH = 8 * 1024 * 1024


@click.command(cls=Command)
@click.argument("topics", nargs=-1, required=True, shell_complete=names.topics)
@click.option(
    "-p", "--partition", "partitions", type=int, multiple=True, help="Only this partition."
)
@click.option(
    "-o",
    "--from",
    "start",
    default="end",
    show_default=True,
    metavar="FROM[:TO]",
    help="beginning, end, an offset, -N (the last N) or a time: 2026-11-22, -1h or @MS.",
)
@click.option("--key", help="Only records with this key; reads only its partition.")
@click.option("-e", "--exit", "leave", is_flag=True, help="Stop at the end of the log.")
@click.option("-c", "--count", type=int, help="Stop after this many records.")
@click.option("-f", "--format", "template", help="Format of a record; see above.")
@click.option("-K", "--key-delimiter", help="Print the key and this before the value.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Printed after a record.")
@click.option("-Z", "--null", is_flag=True, help="Print NULL for null keys and values.")
@click.option(
    "--decode",
    is_flag=True,
    help="Print JSON of what records of __consumer_offsets and __transaction_state say.",
)
@click.option(
    "-g",
    "--group",
    shell_complete=names.groups,
    help="Consume as a member of this group, and commit.",
)
@codec_options
@click.option("--read-uncommitted", is_flag=True, help="Show records of open transactions too.")
@cluster_options
def consume(
    target: Target,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str,
    key: str | None,
    leave: bool,
    count: int | None,
    group: str | None,
    read_uncommitted: bool,
    codec: str | None,
    registry: str | None,
    **how: Any,
) -> None:
    r"""Print records of TOPICS as lines.

    The format takes kcat's fields: %s value, %k key, %h headers, %t topic, %p partition, %o offset,
    %T timestamp in ms, %S and %K lengths. On a terminal, control characters of records are escaped.

    --json prints one object a line, which `barnabas produce --format json` reads.

    `--from A:B` stops before B, an offset or a time: `consume orders -o -2h:-1h`.

    --codec names records that cannot be decoded on standard error; the exit code is then 1.

    --key takes the partitioner of Kafka's clients for granted, and that the topic always had as
    many partitions.
    """
    if codec is not None and how["decode"]:
        raise click.UsageError("give --codec or --decode, not both")
    values = values_of(codec, registry, target)
    renderer = _renderer(topics, as_json=target.as_json, **how)
    position, until = _parse_range(start)
    if group is not None and (partitions or key or until or position.number is not None):
        raise click.UsageError(
            "with --group the group sets partitions and offsets: omit -p, -o and --key"
        )
    settings = FetchSettings(
        max_bytes=_MAX_FETCH,
        read_committed=not read_uncommitted,
        offset_reset=EARLIEST if start == "beginning" else LATEST,
    )
    only = None if key is None else key.encode()

    async def work(cluster: Cluster) -> None:
        consumer = Consumer(cluster, settings)
        async with AsyncExitStack() as stack:
            member, ends = None, dict[TopicPartition, int]()
            if group is not None:
                member = GroupMember(cluster, consumer, group, topics)
                await stack.enter_async_context(member)
            else:
                wanted = await _partitions(cluster, topics, partitions, only)
                await _assign(consumer, wanted, position)
                ends = {} if until is None else await _ends(cluster, settings, wanted, until)
            await _print(consumer, member, renderer(cluster), count, leave, ends, only, values)

    target.run(work)
    if values is not None:
        values.check()


def _renderer(
    topics: tuple[str, ...],
    *,
    as_json: bool,
    decode: bool,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    null: bool,
) -> Callable[[Cluster], Render]:
    """Return the function that makes the one that prints a record of a cluster."""
    if decode:
        # Imported here: the other topics need no code of coordinators.
        from barnabas.cli import internal_records

        internal_records.require_internal(topics)
        return lambda _: internal_records.to_json
    if template is None:
        template = _line(key_delimiter, delimiter)
    at_terminal = sys.stdout.isatty()
    render = compile_format(template, null=b"NULL" if null else b"", for_terminal=at_terminal)
    if not as_json:
        return lambda _: render
    from barnabas.cli.json_records import to_json

    def in_json(cluster: Cluster) -> Render:
        def line(message: Message) -> bytes:
            info = cluster.topics.get(message.topic)
            return to_json(message, None if info is None else len(info.leaders))

        return (lambda each: escape_json(line(each).decode()).encode()) if at_terminal else line

    return in_json


async def _print(
    consumer: Consumer,
    member: GroupMember | None,
    render: Render,
    left: int | None,
    leave: bool,
    ends: Mapping[TopicPartition, int],
    key: bytes | None,
    values: Values | None,
) -> None:
    """Print the records that arrive: at most `left`, and of each partition those before its end.

    With `key`, print only the records with that key; with `values`, what their values mean.
    """
    while left is None or left > 0:
        if member is not None:
            await member.ensure_joined()
        messages = await consumer.poll()
        if ends:
            messages = [each for each in messages if each.offset < ends[_partition_of(each)]]
            for partition, end in ends.items():
                if consumer.positions.get(partition, LATEST) >= end:
                    del consumer.positions[partition]
        if key is not None:
            messages = [each for each in messages if each.key == key]
        if values is not None:
            # In a thread: the registry may be away for a while, and heartbeats have to continue.
            messages = await asyncio.to_thread(values.decode, messages)
        if left is not None:
            for message in reversed(messages[left:]):
                # Commit the printed records only, not all fetched records.
                consumer.positions[_partition_of(message)] = message.offset
            messages = messages[:left]
            left -= len(messages)
        for message in messages:
            sys.stdout.buffer.write(render(message))
        sys.stdout.buffer.flush()
        if member is not None and messages:
            await member.commit()
        if ends and not consumer.positions:
            return
        if leave and all(consumer.at_end(partition) for partition in consumer.positions):
            _tell_held_back(consumer)
            return


def _tell_held_back(consumer: Consumer) -> None:
    """Name the topics with records that an open transaction holds back, on standard error."""
    for topic in sorted({each.topic for each in consumer.held_back & consumer.positions.keys()}):
        tell(
            f"Left out: records of {topic} behind an open transaction, which "
            f"`barnabas transactions why {topic}` names.",
            err=True,
        )


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def _line(key_delimiter: str | None, delimiter: str) -> str:
    """Return the format of a line for --key-delimiter and --delimiter."""
    between = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
    return f"{between}%s{delimiter.replace('%', '%%')}"


@dataclass(frozen=True, slots=True)
class _Start:
    """The value of --from: `word` is beginning, end, offset, back or time."""

    word: str
    number: int | None = None


def _parse_range(text: str) -> tuple[_Start, _Start | None]:
    """Parse FROM or FROM:TO; both may have colons, as times."""
    start = _parse_start(text)
    if start is not None:
        return start, None
    for colon in (place for place, character in enumerate(text) if character == ":"):
        start, until = _parse_start(text[:colon]), _parse_start(text[colon + 1 :])
        if start is not None and until is not None:
            return start, until
    raise click.UsageError(
        f"--from {text}: give beginning, end, an offset, -N, or {TIMES} or @MS since 1970"
    )


def _parse_start(text: str) -> _Start | None:
    if text in ("beginning", "end"):
        return _Start(text)
    for prefix, word in (("-", "back"), ("", "offset")):
        digits = text.removeprefix(prefix)
        if text.startswith(prefix) and digits.isascii() and digits.isdigit():
            return _Start(word, int(digits))
    try:
        return _Start("time", parse_time(text.removeprefix("@")))
    except ValueError:
        return None


async def _partitions(
    cluster: Cluster, topics: tuple[str, ...], partitions: tuple[int, ...], key: bytes | None
) -> list[TopicPartition]:
    """Return the partitions to read: the given ones of each topic, that of the key, or all."""
    wanted = []
    for name in topics:
        known = (await cluster.topic(name)).leaders
        if key is not None and not partitions:
            wanted.append(TopicPartition(name, partition_for(key, len(known))))
            continue
        if absent := set(partitions) - known.keys():
            numbers = ", ".join(map(str, sorted(absent)))
            raise click.ClickException(f"topic {name} has no partition {numbers}")
        wanted += [TopicPartition(name, partition) for partition in partitions or sorted(known)]
    return wanted


async def _assign(consumer: Consumer, wanted: Sequence[TopicPartition], start: _Start) -> None:
    match start:
        case _Start("beginning"):
            consumer.assign(dict.fromkeys(wanted, EARLIEST))
        case _Start("end"):
            consumer.assign(dict.fromkeys(wanted, LATEST))
        case _Start("offset", int(offset)):
            consumer.assign(dict.fromkeys(wanted, offset))
        case _Start("time", int(timestamp)):
            await consumer.seek_to_timestamp(dict.fromkeys(wanted, timestamp))
        case _Start("back", int(count)):
            await consumer.seek_back(wanted, count)


async def _ends(
    cluster: Cluster, settings: FetchSettings, wanted: Sequence[TopicPartition], until: _Start
) -> dict[TopicPartition, int]:
    """Return the offset of each partition before which to stop."""
    if until.word == "offset" and until.number is not None:
        return dict.fromkeys(wanted, until.number)
    if until.word == "back" and until.number is not None:
        return await find_last(cluster, wanted, until.number, settings)
    word = EARLIEST if until.word == "beginning" else LATEST
    last = await find_offsets(
        cluster, dict.fromkeys(wanted, word), read_committed=settings.read_committed
    )
    ends = {partition: row.offset for partition, row in last.items()}
    if until.word == "time" and until.number is not None:
        found = await find_offsets(cluster, dict.fromkeys(wanted, until.number))
        # Without a record that late the end is that of now.
        ends |= {partition: row.offset for partition, row in found.items() if row.offset >= 0}
    return ends
