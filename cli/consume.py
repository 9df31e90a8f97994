"""`barnabas consume`."""

import base64
import json
import sys
from contextlib import AsyncExitStack

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.formats import compile_format
from barnabas.client.admin import EARLIEST, LATEST
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.group import GroupMember


@click.command()
@click.argument("topics", nargs=-1, required=True)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only these.")
@click.option(
    "-o",
    "--from",
    "start",
    default="end",
    show_default=True,
    help="beginning, end, an offset, -N (the last N) or @MS (a time in ms).",
)
@click.option("-e", "--exit", "leave", is_flag=True, help="Stop at the end of the log.")
@click.option("-c", "--count", type=int, help="Stop after this many records.")
@click.option("-f", "--format", "template", default="%s\\n", show_default=True)
@click.option("-g", "--group", help="Read as a member of this group and commit.")
@click.option("--read-uncommitted", is_flag=True, help="Show records of open transactions too.")
@cluster_options
def consume(
    target: Target,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str,
    leave: bool,
    count: int | None,
    template: str,
    group: str | None,
    read_uncommitted: bool,
) -> None:
    r"""Print records of TOPICS as lines.

    The format takes kcat's fields: %s value, %k key, %h headers, %t topic, %p partition, %o offset,
    %T timestamp in ms, %S and %K lengths. --json prints one object a line.
    """
    render = _as_json if target.as_json else compile_format(template)
    settings = FetchSettings(
        read_committed=not read_uncommitted,
        offset_reset=EARLIEST if start == "beginning" else LATEST,
    )

    async def work(cluster: Cluster) -> None:
        consumer = Consumer(cluster, settings)
        left = count
        async with AsyncExitStack() as stack:
            member = None
            if group is not None:
                member = await stack.enter_async_context(
                    GroupMember(cluster, consumer, group, topics)
                )
            else:
                await _assign(cluster, consumer, topics, partitions, start)
            while left is None or left > 0:
                if member is not None:
                    await member.ensure_joined()
                messages = (await consumer.poll())[:left]
                sys.stdout.buffer.write(b"".join(map(render, messages)))
                sys.stdout.buffer.flush()
                if left is not None:
                    left -= len(messages)
                if member is not None:
                    for message in messages:
                        # What is committed is what was printed, not what was fetched.
                        key = (message.topic, message.partition)
                        consumer.positions[key] = message.offset + 1
                    await member.commit()
                if leave and all(consumer.at_end(tp) for tp in consumer.positions):
                    return

    target.run(work)


async def _assign(
    cluster: Cluster,
    consumer: Consumer,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str,
) -> None:
    wanted = []
    for name in topics:
        info = await cluster.retrying(lambda name=name: cluster.topic(name))  # type: ignore[misc]
        wanted += [(name, partition) for partition in partitions or sorted(info.leaders)]
    if start in ("beginning", "end"):
        consumer.assign(dict.fromkeys(wanted, EARLIEST if start == "beginning" else LATEST))
    elif start.startswith("@") and start[1:].isdigit():
        consumer.assign(dict.fromkeys(wanted, LATEST))
        await consumer.seek_to_timestamp(dict.fromkeys(wanted, int(start[1:])))
    elif start.lstrip("-").isdigit():
        offset = int(start)
        consumer.assign(dict.fromkeys(wanted, offset))
        if offset < 0:
            await consumer.seek_back(wanted, -offset)
    else:
        raise click.UsageError(f"--from {start}: give beginning, end, an offset, -N or @MS")


def _as_json(message: Message) -> bytes:
    """One object a line; bytes that are no UTF-8 go as base64 under another name."""
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
