"""`barnabas produce`."""

import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from barnabas.cli.common import Target, cluster_options, parse_pairs
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer, ProducerSettings
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Headers

_CODECS = {codec.name.lower(): codec for codec in Compression}
_READ = 256 * 1024


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-p", "--partition", type=int, help="The partition; else by key, else in turn.")
@click.option("-k", "--key", help="One key for every record.")
@click.option("-K", "--key-delimiter", help="Split each line into key and value here.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="What ends a record.")
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
    end = _unescape(delimiter)
    split = None if key_delimiter is None else _unescape(key_delimiter)

    async def work(cluster: Cluster) -> int:
        sent = []
        async with Producer(cluster, settings) as producer:
            for line in _records(file, end):
                record_key, value = _split(line, split, key)
                if null:
                    record_key, value = record_key or None, value or None
                sent.append(
                    await producer.send(
                        topic, value, key=record_key, headers=fixed, partition=partition
                    )
                )
        for delivered in sent:
            delivered.result()
        return len(sent)

    count = target.run(work)
    if target.as_json:
        target.done("", topic=topic, records=count)
    elif sys.stderr.isatty():
        click.echo(f"Produced {count} record(s) to {topic}.", err=True)


def _unescape(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode()


def _split(line: bytes, split: bytes | None, key: str | None) -> tuple[bytes | None, bytes | None]:
    fixed = None if key is None else key.encode()
    if split is None:
        return fixed, line
    head, found, tail = line.partition(split)
    return (head, tail) if found else (fixed, line)


def _records(file: BinaryIO, end: bytes) -> Iterator[bytes]:
    """Pieces of `file` between delimiters; an unfinished last one counts, an empty one does not."""
    rest = b""
    # read1: a person at the keyboard sees each line go out.
    while chunk := file.read1(_READ) if hasattr(file, "read1") else file.read(_READ):
        *whole, rest = (rest + chunk).split(end)
        yield from whole
    if rest:
        yield rest
