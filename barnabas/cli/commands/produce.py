"""`barnabas produce`: produce the lines of a file or of standard input."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from barnabas.cli import arguments, names
from barnabas.cli.arguments import parse_pairs, unescape
from barnabas.cli.common import Target, cluster_options, progress
from barnabas.cli.help import Command
from barnabas.cli.registered import codec_options, encode_of, writer_options
from barnabas.cli.source import read_chunks, split_records
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import (
    Delivered,
    Producer,
    ProducerSettings,
    encode_batches,
    partition_for,
)
from barnabas.operations.answers.records import Produced
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Headers

if TYPE_CHECKING:
    from barnabas.cli.json_records import JsonRecord

_CODECS: Final = {codec.name.lower(): codec for codec in Compression}
_REMEMBERED_KEYS: Final = 1 << 16
_LARGEST: Final = "max.message.bytes"
_FILLED: Final = 0.99
"""The part of the largest batch to fill, because codecs make random bytes larger."""

Fields = Iterable[bytes | None]
Keyed = tuple[Fields, Fields]
"""Keys and values."""
Send = Callable[[Sequence[bytes]], Awaitable[None]]
"""A function that queues the records of some lines."""


class _Lines(NamedTuple):
    """The options that make records of lines."""

    topic: str
    partition: int | None
    headers: Headers
    timestamp: int | None
    key: bytes | None
    split: bytes | None
    null: bool
    encode: Callable[[bytes], bytes] | None = None
    """The codec of values."""

    def fields(self, lines: Sequence[bytes]) -> Keyed:
        """Return keys and values."""
        keys: Fields = repeat(self.key)
        values: Fields = lines
        if self.split is not None:
            pairs = [self._pair(line, self.split) for line in lines]
            keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        if self.null:
            keys = repeat(self.key or None) if self.split is None else [key or None for key in keys]
            values = [value or None for value in values]
        if self.encode is not None:
            values = [None if value is None else self.encode(value) for value in values]
        return keys, values

    def _pair(self, line: bytes, split: bytes) -> tuple[bytes | None, bytes]:
        head, found, tail = line.partition(split)
        return (head, tail) if found else (self.key, line)


@click.command(cls=Command)
@click.argument("topic", shell_complete=names.topics)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-p", "--partition", type=int, help="Default: by key, or sticky without a key.")
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-delimiter", help="Split each line into key and value here.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Add a header."
)
@click.option(
    "-T",
    "--timestamp",
    type=arguments.time,
    metavar="TIME",
    help="Timestamp of every record: 2026-11-22T10:00Z, -1h or ms.",
)
@click.option(
    "-F",
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="json: objects as `consume --json` prints them, with keys, headers and timestamps.",
)
@click.option(
    "--same-partitions", is_flag=True, help="With --format json, to the partitions of the objects."
)
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="End of a record.")
@click.option("-Z", "--null", is_flag=True, help="Empty keys and values become null.")
@codec_options
@writer_options
@click.option("-z", "--compression", type=click.Choice(list(_CODECS)), default="none")
@click.option("-a", "--acks", type=click.Choice(["all", "1", "0"]), default="all")
@cluster_options
def produce(
    target: Target,
    topic: str,
    file: BinaryIO,
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    timestamp: int | None,
    form: str,
    same_partitions: bool,
    delimiter: str,
    null: bool,
    compression: str,
    acks: str,
    **coded: Any,
) -> None:
    """Produce each line of FILE (or standard input) to TOPIC.

    `consume A --json -o beginning -e | produce B --format json --same-partitions` copies a topic.
    """
    as_json = form == "json"
    if same_partitions and not as_json:
        raise click.UsageError("--same-partitions needs --format json")
    if as_json and (key, key_delimiter, headers, timestamp, null) != (None, None, (), None, False):
        raise click.UsageError("with --format json the objects have keys, headers and timestamps")
    settings = ProducerSettings(
        acks=-1 if acks == "all" else int(acks), compression=_CODECS[compression]
    )
    fixed: Headers = tuple((name, v.encode()) for name, v in parse_pairs(headers).items())
    end = unescape(delimiter)
    split = None if key_delimiter is None else unescape(key_delimiter)
    if not end or split == b"":
        raise click.UsageError("a delimiter must not be empty")
    one_key, encode = None if key is None else key.encode(), encode_of(target, topic, **coded)
    lines = _Lines(topic, partition, fixed, timestamp, one_key, split, null, encode)

    async def work(cluster: Cluster) -> int:
        tally = _Tally()
        size = 0
        with progress(f"produce {topic}", _size(file), unit="B") as advance:
            async with Producer(cluster, settings) as producer:
                if as_json:
                    number = await _partitions(cluster, topic) if same_partitions else None
                    send = _by_object(producer, lines, tally, number)
                else:
                    send = await _sender(cluster, producer, settings, lines, tally)
                async for each in split_records(read_chunks(file, _prompt(file)), end):
                    await send(each)
                    tally.check()
                    size += sum(map(len, each)) + len(end) * len(each)
                    advance(size)
        tally.check()
        return tally.delivered

    delivered = target.run(work)
    if target.as_json:
        target.answer(Produced(topic=topic, records=delivered), indent=None)
    elif sys.stderr.isatty():
        click.echo(f"Produced {delivered} record(s) to {topic}.", err=True)


async def _sender(
    cluster: Cluster, producer: Producer, settings: ProducerSettings, lines: _Lines, tally: "_Tally"
) -> Send:
    """Return the function that sends lines: as whole batches, if the largest batch is known.

    A whole batch costs a third to a half of its records sent one by one, but nothing splits one
    that is too large.
    """
    partitions = await _partitions(cluster, lines.topic)
    try:
        configs = await Admin(cluster).describe_configs(ConfigResourceType.TOPIC, lines.topic)
    except KafkaError:
        # It takes a right that producers need not have.
        configs = []
    largest = [int(each.value) for each in configs if each.name == _LARGEST and each.value]
    if not largest:
        return _by_record(producer, lines, tally)
    size = min(settings.batch_size, int(largest[0] * _FILLED))
    return _by_batch(producer, lines, tally, size, settings.compression, partitions)


async def _partitions(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions of a topic, which is created if brokers do so."""
    return len((await cluster.retrying(lambda: cluster.topic(topic, create=True))).leaders)


def _by_record(producer: Producer, lines: _Lines, tally: "_Tally") -> Send:
    async def send(some: Sequence[bytes]) -> None:
        keys, values = lines.fields(some)
        for value, key in zip(values, keys, strict=False):
            delivered = await producer.send(
                lines.topic,
                value,
                key=key,
                headers=lines.headers,
                partition=lines.partition,
                timestamp=lines.timestamp,
            )
            tally.count(delivered, 1)

    return send


def _by_object(producer: Producer, lines: _Lines, tally: "_Tally", partitions: int | None) -> Send:
    """Return the function that sends objects: to their own partition, if the number of the topic's
    partitions is given."""
    from barnabas.cli.json_records import from_json
    from barnabas.registry.wire import SCHEMA_HEADERS

    number = 0

    async def send(some: Sequence[bytes]) -> None:
        nonlocal number
        for line in some:
            number += 1
            try:
                record = from_json(line)
            except ValueError as error:
                raise click.ClickException(f"line {number} is no record: {error}") from None
            if partitions is not None:
                _require_partitions(lines.topic, partitions, record)
            value, headers = record.value, record.headers
            if value is not None and lines.encode is not None:
                value = lines.encode(value)
                # Readers would take it for the schema of this value.
                headers = tuple(each for each in headers if each[0] != SCHEMA_HEADERS["value"])
            delivered = await producer.send(
                lines.topic,
                value,
                key=record.key,
                headers=headers,
                partition=lines.partition if partitions is None else record.partition,
                timestamp=record.timestamp,
            )
            tally.count(delivered, 1)

    return send


def _require_partitions(topic: str, partitions: int, record: "JsonRecord") -> None:
    """Raise ClickException if a topic has fewer partitions than the one that is copied.

    Each line of `consume` has their number, so a copy fails before its first record.
    """
    needed = max(record.topic_partitions or 0, (record.partition or 0) + 1)
    if needed > partitions:
        raise click.ClickException(
            f"topic {topic} has no partition {needed - 1}, which the copied topic has: "
            f"`barnabas topics alter {topic} -p {needed}` adds it"
        )


def _by_batch(
    producer: Producer,
    lines: _Lines,
    tally: "_Tally",
    batch_size: int,
    compression: Compression,
    partitions: int,
) -> Send:
    partition_of = lru_cache(_REMEMBERED_KEYS)(partition_for)
    turns = count()

    def by_partition(turn: int, keys: Fields, values: Fields) -> Iterable[tuple[int, Keyed]]:
        """Yield keys and values of each partition; those without a key go to the next in turn."""
        keyless = turn % partitions if lines.partition is None else lines.partition
        if lines.partition is not None or (lines.key is None and lines.split is None):
            yield keyless, (keys, values)
            return
        found: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for value, key in zip(values, keys, strict=False):
            partition = keyless if key is None else partition_of(key, partitions)
            own_keys, own_values = found.setdefault(partition, ([], []))
            own_keys.append(key)
            own_values.append(value)
        yield from found.items()

    async def send(some: Sequence[bytes]) -> None:
        stamp = time.time_ns() // 1_000_000 if lines.timestamp is None else lines.timestamp
        for partition, (keys, values) in by_partition(next(turns), *lines.fields(some)):
            for batch in encode_batches(
                values,
                keys,
                stamp,
                batch_size=batch_size,
                headers=lines.headers,
                compression=compression,
            ):
                tally.count(await producer.send_batch(lines.topic, partition, batch), batch.count)

    return send


class _Tally:
    """The count of delivered records and the first error; it keeps no record."""

    def __init__(self) -> None:
        self.delivered = 0
        self._error: BaseException | None = None

    def count(self, delivered: "asyncio.Future[Delivered]", records: int) -> None:
        """Count some records once they are delivered."""

        def note(done: "asyncio.Future[Delivered]") -> None:
            if done.cancelled():
                return
            if error := done.exception():
                self._error = self._error or error
            else:
                self.delivered += records

        delivered.add_done_callback(note)

    def check(self) -> None:
        """Raise the first error, if any."""
        if self._error is not None:
            raise self._error


def _prompt(file: BinaryIO) -> Callable[[], None]:
    """Return the function that asks for a line, if the lines are typed at a terminal."""
    if not (file.isatty() and sys.stderr.isatty()):
        return lambda: None
    click.echo("Each line is a record; Ctrl-D ends the input.", err=True)
    return lambda: click.echo("> ", err=True, nl=False)


def _size(file: BinaryIO) -> int | None:
    """Return the size of the input in bytes; None if it is not a regular file."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
