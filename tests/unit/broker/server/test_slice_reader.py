"""The reader of file ranges for a socket: every byte, in order, no more than requested."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.slice_reader import SliceReader
from barnabas.protocol.codec import decode
from barnabas.protocol.messages import fetch
from barnabas.storage.log.log_slice import LogSlice
from tests.support.mem_files import MemFiles
from tests.unit.broker.server.wire import Peer, turn


def slice_of(*ranges: bytes) -> LogSlice:
    """Return ranges of as many files, each between bytes that do not belong to it."""
    files, parts = MemFiles(), []
    for number, data in enumerate(ranges):
        file = files.open(f"/{number}", create=True)
        file.append(b"before" + data + b"after")
        parts.append((file, len(b"before"), len(data)))
    return LogSlice(0, 1, tuple(parts))


def test_ranges_are_read_completely_and_in_order() -> None:
    drain, read = SliceReader(slice_of(b"abcdef", b"", b"ghi")), []
    while not drain.finished:
        data = drain.read(4)
        assert data is not None
        read.append(bytes(data))
    assert read == [b"abcd", b"ef", b"ghi"]


def test_file_that_ends_early_is_an_error() -> None:
    source = slice_of(b"abc")
    ((file, position, _),) = source.ranges
    drain = SliceReader(LogSlice(0, 1, ((file, position + 100, 5),)))
    with pytest.raises(OSError, match="ends before"):
        drain.read(5)


class ColdFile:
    """A file that is not, or only partly, in the page cache."""

    path = "cold"

    def __init__(self, data: bytes, cached: Callable[[], bool]) -> None:
        self._data = data
        self._cached = cached

    def read(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def read_nowait(self, length: int, offset: int) -> bytes | None:
        return self.read(min(length, 1000), offset) if self._cached() else None


def fetched(source: Any) -> Callable[[Any, RequestContext], Any]:
    """Return a handler whose answer has records from a file."""

    def handle(_request: Any, _context: RequestContext) -> Any:
        return source

    return handle


async def test_uncached_bytes_are_read_in_thread_in_order() -> None:
    data = bytes(range(256)) * 40
    turns = iter([True, False, True, False] + [True] * 100)
    cold = ColdFile(data, lambda: next(turns))
    partition = fetch.PartitionData(
        partition_index=0,
        high_watermark=1,
        aborted_transactions=None,
        records=LogSlice(0, 1, ((cold, 0, len(data)),)),  # type: ignore[arg-type]
    )
    answer = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])]
    )
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
    peer = Peer(fetched(answer), apis=[fetch.API])
    first = peer.send(fetch.API, 12, request)
    second = peer.send(fetch.API, 12, request)
    for _ in range(20):
        await turn()
    assert peer.answered() == [first, second]
    size = len(peer.transport.written) // 2
    got = decode(fetch.FetchResponse, 12, bytes(peer.transport.written)[9:size])
    assert got.responses[0].partitions[0].records == data


async def test_file_error_closes_connection_without_wrong_bytes() -> None:
    class Broken(ColdFile):
        def read_nowait(self, _length: int, _offset: int) -> bytes | None:
            raise OSError(5, "input/output error")

    broken = Broken(b"", lambda: True)
    partition = fetch.PartitionData(
        partition_index=0,
        high_watermark=1,
        aborted_transactions=None,
        records=LogSlice(0, 1, ((broken, 0, 10),)),  # type: ignore[arg-type]
    )
    answer = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])]
    )
    peer = Peer(fetched(answer), apis=[fetch.API])
    peer.send(fetch.API, 12, fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]))
    assert peer.transport.aborted
