"""`barnabas produce`: produce the lines of a file or of standard input."""

import asyncio
import os
import stat
import sys
from typing import BinaryIO

import click

from barnabas.cli.arguments import parse_pairs, unescape
from barnabas.cli.common import Target, cluster_options, progress
from barnabas.cli.source import read_chunks, split_records
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Delivered, Producer, ProducerSettings
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Headers

_CODECS = {codec.name.lower(): codec for codec in Compression}


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-p", "--partition", type=int, help="Default: by key, or sticky without a key.")
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-delimiter", help="Split each line into key and value here.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Add a header."
)
@click.option("-T", "--timestamp", type=int, metavar="MS", help="Timestamp of every record.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="End of a record.")
@click.option("-Z", "--null", is_flag=True, help="Empty keys and values become null.")
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
    delimiter: str,
    null: bool,
    compression: str,
    acks: str,
) -> None:
    """Produce each line of FILE (or standard input) to TOPIC."""
    settings = ProducerSettings(
        acks=-1 if acks == "all" else int(acks), compression=_CODECS[compression]
    )
    fixed: Headers = tuple((name, v.encode()) for name, v in parse_pairs(headers).items())
    end = unescape(delimiter)
    split = None if key_delimiter is None else unescape(key_delimiter)
    if not end or split == b"":
        raise click.UsageError("a delimiter must not be empty")
    one_key = None if key is None else key.encode()

    async def work(cluster: Cluster) -> int:
        tally = _Tally()
        size = 0
        with progress(f"produce {topic}", _size(file)) as advance:
            async with Producer(cluster, settings) as producer:
                async for line in split_records(read_chunks(file), end):
                    own_key, value = _split(line, split, one_key)
                    if null:
                        own_key, value = own_key or None, value or None
                    delivered = await producer.send(
                        topic,
                        value,
                        key=own_key,
                        headers=fixed,
                        partition=partition,
                        timestamp=timestamp,
                    )
                    delivered.add_done_callback(tally.note)
                    tally.check()
                    size += len(line) + len(end)
                    advance(size)
        tally.check()
        return tally.delivered

    count = target.run(work)
    if target.as_json:
        target.done("", topic=topic, records=count)
    elif sys.stderr.isatty():
        click.echo(f"Produced {count} record(s) to {topic}.", err=True)


class _Tally:
    """The count of delivered records and the first error; it keeps no record."""

    def __init__(self) -> None:
        self.delivered = 0
        self._error: BaseException | None = None

    def note(self, delivered: "asyncio.Future[Delivered]") -> None:
        if delivered.cancelled():
            return
        if error := delivered.exception():
            self._error = self._error or error
        else:
            self.delivered += 1

    def check(self) -> None:
        """Raise the first error, if any."""
        if self._error is not None:
            raise self._error


def _size(file: BinaryIO) -> int | None:
    """Return the size of the input in bytes; None if it is not a regular file."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _split(
    line: bytes, split: bytes | None, key: bytes | None
) -> tuple[bytes | None, bytes | None]:
    if split is None:
        return key, line
    head, found, tail = line.partition(split)
    return (head, tail) if found else (key, line)
