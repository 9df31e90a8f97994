"""`barnabas consume`: print the records of topics as lines."""

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.formats import Render, compile_format
from barnabas.cli.quantities import TIMES, parse_time
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.group import GroupMember
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.topic_partition import TopicPartition

_MAX_FETCH = 8 * 1024 * 1024


@click.command()
@click.argument("topics", nargs=-1, required=True)
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
@click.option("-e", "--exit", "leave", is_flag=True, help="Stop at the end of the log.")
@click.option("-c", "--count", type=int, help="Stop after this many records.")
@click.option("-f", "--format", "template", help="Format of a record; see above.")
@click.option("-K", "--key-delimiter", help="Print the key and this before the value.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Printed after a record.")
@click.option("-Z", "--null", is_flag=True, help="Print NULL for null keys and values.")
@click.option("-g", "--group", help="Consume as a member of this group, and commit.")
@click.option("--read-uncommitted", is_flag=True, help="Show records of open transactions too.")
@cluster_options
def consume(
    target: Target,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str,
    leave: bool,
    count: int | None,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    null: bool,
    group: str | None,
    read_uncommitted: bool,
) -> None:
    r"""Print records of TOPICS as lines.

    The format takes kcat's fields: %s value, %k key, %h headers, %t topic, %p partition, %o offset,
    %T timestamp in ms, %S and %K lengths. --json prints one object a line. On a terminal, control
    characters of records are escaped.

    `--from A:B` stops before B, an offset or a time: `consume orders -o -2h:-1h`.
    """
    if template is None:
        template = _line(key_delimiter, delimiter)
    null_text = b"NULL" if null else b""
    render = compile_format(template, null=null_text, for_terminal=sys.stdout.isatty())
    if target.as_json:
        render = _as_json
    position, until = _parse_range(start)
    if group is not None and (partitions or until or position.number is not None):
        raise click.UsageError("with --group the group sets partitions and offsets: omit -p and -o")
    reset = EARLIEST if start == "beginning" else LATEST
    settings = FetchSettings(
        max_bytes=_MAX_FETCH, read_committed=not read_uncommitted, offset_reset=reset
    )

    async def work(cluster: Cluster) -> None:
        consumer = Consumer(cluster, settings)
        async with AsyncExitStack() as stack:
            member, ends = None, dict[TopicPartition, int]()
            if group is not None:
                member = GroupMember(cluster, consumer, group, topics)
                await stack.enter_async_context(member)
            else:
                wanted = await _partitions(cluster, topics, partitions)
                await _assign(consumer, wanted, position)
                ends = {} if until is None else await _ends(cluster, settings, wanted, until)
            await _print(consumer, member, render, count, leave, ends)

    target.run(work)


async def _print(
    consumer: Consumer,
    member: GroupMember | None,
    render: Render,
    left: int | None,
    leave: bool,
    ends: Mapping[TopicPartition, int],
) -> None:
    """Print the records that arrive: at most `left`, and of each partition those before its end."""
    while left is None or left > 0:
        if member is not None:
            await member.ensure_joined()
        messages = await consumer.poll()
        if ends:
            messages = [each for each in messages if each.offset < ends[_partition_of(each)]]
            for partition, end in ends.items():
                if consumer.positions.get(partition, LATEST) >= end:
                    del consumer.positions[partition]
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
            return


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
    cluster: Cluster, topics: tuple[str, ...], partitions: tuple[int, ...]
) -> list[TopicPartition]:
    wanted = []
    for name in topics:
        known = (await cluster.topic(name)).leaders
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
    word = EARLIEST if until.word == "beginning" else LATEST
    last = await find_offsets(
        cluster, dict.fromkeys(wanted, word), read_committed=settings.read_committed
    )
    ends = {partition: row.offset for partition, row in last.items()}
    if until.word == "back" and until.number is not None:
        return {partition: max(end - until.number, 0) for partition, end in ends.items()}
    if until.word == "time" and until.number is not None:
        found = await find_offsets(cluster, dict.fromkeys(wanted, until.number))
        # Without a record that late the end is that of now.
        ends |= {partition: row.offset for partition, row in found.items() if row.offset >= 0}
    return ends


def _as_json(message: Message) -> bytes:
    """Return a record as a JSON object; bytes that are not UTF-8 get a field in base64."""
    row: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
    }
    for name, data in (("key", message.key), ("value", message.value)):
        try:
            row[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            row[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if message.headers:
        row["headers"] = [
            [name, None if data is None else data.decode(errors="backslashreplace")]
            for name, data in message.headers
        ]
    return json.dumps(row).encode() + b"\n"
