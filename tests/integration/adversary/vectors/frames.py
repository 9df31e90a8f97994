"""Frame sizes and request headers."""

import struct
from collections.abc import Iterator

from barnabas.protocol.apis import APIS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import api_versions, list_groups, metadata
from tests.integration.adversary.vectors.vector import CLOSES, WAITS, Vector, frame

MAX_REQUEST = 104_857_600
NOT_SERVED = (4, 5, 6, 7, 17, 36, 55, 56, 62, 63, 1000, 32767, -1, -32768)

SIZES = [
    ("nothing but silence", b"", WAITS),
    ("half of a size", b"\0\0", WAITS),
    ("a size and nothing else", struct.pack(">i", 100), WAITS),
    ("the largest size that is accepted", struct.pack(">i", MAX_REQUEST), WAITS),
    ("half of a header", struct.pack(">ihh", 100, 3, 12), WAITS),
    ("one byte above the largest size", struct.pack(">i", MAX_REQUEST + 1), CLOSES),
    ("2 GB", struct.pack(">i", 2**31 - 1), CLOSES),
    ("size -1", struct.pack(">i", -1), CLOSES),
    ("size -2^31", struct.pack(">i", -(2**31)), CLOSES),
    ("an empty frame", frame(b""), CLOSES),
    ("zeros", bytes(64), CLOSES),
    ("ones", b"\xff" * 64, CLOSES),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", CLOSES),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), CLOSES),
    ("SSH", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", CLOSES),
    ("PROXY v1", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", CLOSES),
    ("PROXY v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), CLOSES),
    ("a SASL token without a header", frame(b"\0user\0password"), CLOSES),
    *((f"a frame of {size} bytes", frame(bytes(size)), CLOSES) for size in range(1, 10)),
]


def header(
    key: int, version: int, *, length: int | None = None, client: bytes = b"", rest: bytes = b""
) -> bytes:
    """Return a request header, with false values if they are given."""
    size = len(client) if length is None else length
    return frame(struct.pack(">hhih", key, version, 7, size) + client + rest)


def vectors() -> Iterator[Vector]:
    for name, data, expected in SIZES:
        yield Vector(f"frame: {name}", data, expected)
    for key in NOT_SERVED:
        yield Vector(f"header: API key {key}", header(key, 0), CLOSES)
    for key in sorted(APIS):
        if key != api_versions.API.key:
            yield Vector(f"header: API {key} in version 77", header(key, 77), CLOSES)
    yield from _versions()
    yield from _client_ids()
    yield from _tags()


def _versions() -> Iterator[Vector]:
    for version in (api_versions.API.versions.stop, 99, 32767, -1, -32768):
        # KIP-511: the only request that is answered in an unknown version, in version 0.
        data = header(18, version, rest=b"\0")
        name = f"header: ApiVersions in version {version}"
        yield Vector(name, data, ErrorCode.UNSUPPORTED_VERSION, api_versions.API, 0)
    for version in (-1, -32768, 32767):
        yield Vector(f"header: Metadata in version {version}", header(3, version), CLOSES)
        yield Vector(f"header: Produce in version {version}", header(0, version), CLOSES)


def _client_ids() -> Iterator[Vector]:
    topics = b"\0\0\0\0"
    for name, head in {
        "null": header(3, 1, length=-1, rest=topics),
        "empty": header(3, 1, rest=topics),
        "with NUL and newline": header(3, 1, client=b"a\0\n\x1b[31m", rest=topics),
        "of 32767 bytes": header(3, 1, client=b"x" * 32767, rest=topics),
        "of bytes that are no UTF-8": header(3, 1, client=b"\xff\xfe", rest=topics),
        "of a surrogate": header(3, 1, client=b"\xed\xa0\x80", rest=topics),
    }.items():
        yield Vector(f"header: client id {name}", head, ErrorCode.NONE, metadata.API, 1)
    for name, head in {
        "longer than its frame": header(3, 1, length=32767, client=b"abc"),
        "that takes the body": header(3, 1, length=5, client=b"abc", rest=b"\0"),
    }.items():
        yield Vector(f"header: client id {name}", head, CLOSES)
    for length in (-2, -32768):
        # As in Kafka any negative length is null.
        data = header(3, 1, length=length, rest=topics)
        name = f"header: client id of length {length}"
        yield Vector(name, data, ErrorCode.NONE, metadata.API, 1)


def _tags() -> Iterator[Vector]:
    body = b"\x01\x01\0"
    api = list_groups.API
    for name, tags in {
        "unknown and empty": b"\x01\x63\0",
        "unknown with bytes": b"\x01\x63\x03abc",
        "the same twice": b"\x02\x63\0\x63\0",
        "64 empty ones": b"\x40" + b"\x63\0" * 64,
        "of a number in five bytes": b"\x01\xff\xff\xff\xff\x0f\0",
    }.items():
        data = header(16, 5, client=b"c", rest=tags + body)
        yield Vector(f"header: tags, {name}", data, ErrorCode.NONE, api, 5)
    for name, tags in {
        "65 empty ones": b"\x41" + b"\x63\0" * 65,
        "that are missing": b"",
        "more than there are bytes": b"\xff\xff\xff\xff\x0f",
        "a size beyond the frame": b"\x01\x63\xff\xff\xff\xff\x07",
        "a size that ends nowhere": b"\x01\x63\xff\xff\xff",
        "a count of six bytes": b"\x80\x80\x80\x80\x80\x01",
        "a size above 32 bits": b"\x01\x63\xff\xff\xff\xff\x7f",
    }.items():
        yield Vector(f"header: tags, {name}", header(16, 5, client=b"c", rest=tags), CLOSES)
