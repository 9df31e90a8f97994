"""Produce where `max.decompressed.message.bytes` limits the records of compressed batches."""

from collections.abc import Callable

from barnabas.protocol.messages.produce import API
from barnabas.protocol.records.compression import Compression
from tests.referee import given
from tests.referee.given import batch, fetch, list_offsets, produce
from tests.referee.scenario import Peer, Play, Scenarios

scenario = Scenarios(API)

KEY = "max.decompressed.message.bytes"
LIMIT = 10_000
FITS = 9_992
"""The bytes of a value without key that make a record of LIMIT bytes, without its length."""
LATEST = -1
ZSTD_SINCE = 7
CODECS = tuple(each for each in Compression if each is not Compression.NONE)


def limited(s: Peer, limit: int = LIMIT) -> given.Topic:
    return given.topic(s, configs={KEY: str(limit)})


def with_each_codec(play: Callable[[Peer, Compression], None]) -> None:
    """Add the scenario once for each codec."""

    def of(codec: Compression) -> Play:
        def played(s: Peer) -> None:
            play(s, codec)

        played.__name__ = f"{play.__name__}_of_{codec.name.lower()}"
        return played

    for codec in CODECS:
        scenario(since=ZSTD_SINCE if codec is Compression.ZSTD else None, key=KEY)(of(codec))


@with_each_codec
def a_record_at_the_limit_and_one_above(s: Peer, codec: Compression) -> None:
    to = limited(s)
    s.ask(produce(to, batch(b"x" * FITS, compression=codec)))
    s.ask(produce(to, batch(b"x" * (FITS + 1), compression=codec)))
    s.ask(fetch(to))


@with_each_codec
def a_large_record_among_small_ones(s: Peer, codec: Compression) -> None:
    to = limited(s)
    s.ask(produce(to, batch(b"a", b"x" * 20_000, b"c", compression=codec)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@with_each_codec
def a_batch_that_is_larger_than_each_record(s: Peer, codec: Compression) -> None:
    to = limited(s)
    s.ask(produce(to, batch(*[b"x" * 5_000] * 10, compression=codec)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@with_each_codec
def a_record_with_a_key(s: Peer, codec: Compression) -> None:
    to = limited(s, 100)
    for key, value in ((b"k" * 60, b"v" * 32), (b"k" * 60, b"v" * 40), (b"k" * 200, None)):
        s.ask(produce(to, batch(value, key=key, compression=codec)))


@with_each_codec
def a_limit_of_one_byte(s: Peer, codec: Compression) -> None:
    s.ask(produce(limited(s, 1), batch(b"", compression=codec)))


@scenario(key=KEY)
def uncompressed_records_have_no_limit(s: Peer) -> None:
    to = limited(s, 1)
    s.ask(produce(to, batch(b"x" * 20_000)))
    s.ask(fetch(to))
