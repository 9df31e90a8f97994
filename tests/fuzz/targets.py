"""What is fuzzed. A target takes any bytes; ProtocolError is its only way to refuse them."""

from collections.abc import Callable
from typing import Final

from barnabas.protocol.codec import decoder, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader
from barnabas.protocol.header import decode_request_header, decode_response_header
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.schema import APIS, api

MAX_FRAME: Final = 1 << 16
MAX_INFLATED: Final = 1 << 20

REQUESTS: Final = [(key, version) for key in APIS for version in api(key).versions]


def frame(data: bytes) -> None:
    """A byte stream, cut where its first byte says, and every frame's header."""
    reader = FrameReader(MAX_FRAME)
    step = 8 * data[0] + 1 if data else 1
    for start in range(1, len(data), step):
        reader.feed(data[start : start + step])
        while (found := reader.next_frame()) is not None:
            assert len(found) <= MAX_FRAME
        assert reader.capacity <= 1 << 19


def header(data: bytes) -> None:
    """Headers of requests and responses."""
    _, offset = decode_request_header(data)
    assert offset <= len(data)
    _, offset = decode_response_header(3, 9, data)
    assert offset <= len(data)


def request(data: bytes) -> None:
    """Every request in every version, chosen by the first byte; what is read can be written."""
    if not data:
        return
    key, version = REQUESTS[data[0] % len(REQUESTS)]
    message = decoder(api(key).request, version)(data, 1, False)
    encode(message, version)


def batches(data: bytes) -> None:
    """Record batches: headers, CRC, records of every codec, markers."""
    for position, found in iter_headers(data):
        crc_matches(data, position, found)
        if found.is_control:
            read_marker(data, position, found)
        for _ in iter_records(data, position, found, max_bytes=MAX_INFLATED):
            pass


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "frame": frame,
    "header": header,
    "request": request,
    "batches": batches,
}


def run(target: str, data: bytes) -> None:
    """One input: whatever escapes, ProtocolError aside, is a finding."""
    try:
        TARGETS[target](data)
    except ProtocolError:
        return
