"""Record batches: wrong values in every header field, false records, codecs and decompression
bombs.

Two topics: `plain` is checked by the batch header; `keyed` is compacted, so the broker validates
the records.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, partial

import cramjam
from crc32c import crc32c
from lz4 import frame

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.records.varint import write_varint
from tests.integration.adversary.vectors.vector import Vector, request, string

VERSION = 8
INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
TOO_LARGE, CODEC = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
TIME, NONE = ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE
NOT_ALLOWED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
STAMP = 1_700_000_000_000
RECORDS = [Record(0, STAMP, b"k", b"v", ()), Record(1, STAMP, b"k", b"w", ())]
GOOD = build_batch(RECORDS)

# The positions of the fields of a batch header, and their struct formats.
FIELDS = {
    "base offset": (0, ">q"),
    "length": (8, ">i"),
    "leader epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"),
    "max timestamp": (35, ">q"),
    "producer id": (43, ">q"),
    "producer epoch": (51, ">h"),
    "base sequence": (53, ">i"),
    "record count": (57, ">i"),
}

# (field, value, expected reaction); the CRC is right, unless it is the field.
HEADERS = [
    *(("base offset", value, INVALID) for value in (1, -1, 2**63 - 1, -(2**63))),
    *(("length", value, CORRUPT) for value in (0, 1, 13, 48, -1, -(2**31))),
    *(("length", value, INVALID) for value in (49, len(GOOD) - 13)),
    *(("length", value, INVALID) for value in (len(GOOD) - 11, 2**20, 2**31 - 1)),
    *(("leader epoch", value, NONE) for value in (0, 7, -1, -(2**31), 2**31 - 1)),
    *(("magic", value, INVALID) for value in (0, 1)),
    *(("magic", value, CORRUPT) for value in (3, 127, -1, -128)),
    *(("crc", value, CORRUPT) for value in (0, 1, 2**31, 2**32 - 1)),
    *(("attributes", value, CODEC) for value in (5, 6, 7)),
    *(("attributes", value, TIME) for value in (0x08,)),
    *(("attributes", value, NOT_ALLOWED) for value in (0x10, 0x30, 0x37, 0x7F, -1)),
    *(("attributes", value, INVALID) for value in (0x20, 0x28)),
    *(("last offset delta", value, INVALID) for value in (0, 2, -1, 2**31 - 1, -(2**31))),
    *(("base timestamp", value, TIME) for value in (2**63 - 1, STAMP * 1000)),
    *(("max timestamp", value, TIME) for value in (2**63 - 1, STAMP * 1000)),
    *(("producer id", value, INVALID) for value in (0, 5, 2**63 - 1)),
    *(("record count", value, INVALID) for value in (0, 1, 3, -1, 2**31 - 1, -(2**31))),
]

PRODUCERS = [
    ("id without an epoch", {"producer id": 1, "base sequence": 0}, INVALID),
    ("id without a sequence", {"producer id": 1, "producer epoch": 0}, INVALID),
    ("sequence of -2", {"producer id": 1, "producer epoch": 0, "base sequence": -2}, INVALID),
    ("epoch of -32768", {"producer id": 1, "producer epoch": -32768, "base sequence": 0}, INVALID),
    ("a gap at the start", {"producer id": 9, "producer epoch": 0, "base sequence": 5}, NONE),
    ("all three at their ends",
     {"producer id": 2**63 - 1, "producer epoch": 32767, "base sequence": 2**31 - 1}, NONE),
]  # fmt: skip


def vectors() -> Iterator[Vector]:
    for field, value, expected in HEADERS:
        yield _produce(f"{field} of {value}", _with({field: value}), expected)
    for name, values, expected in PRODUCERS:
        yield _produce(f"producer: {name}", _with(values), expected)
    yield from _shapes()
    yield from _records()
    yield from _codecs()
    yield from _bombs()


def _shapes() -> Iterator[Vector]:
    yield _produce("null", None, INVALID)
    yield _produce("empty", b"", INVALID)
    for size in (1, 8, 11, 12, 16, 17, 21, 60):
        yield _produce(f"cut after {size} bytes", GOOD[:size], INVALID)
    yield _produce("cut before the last byte", GOOD[:-1], INVALID)
    yield _produce("a byte behind it", GOOD + b"\0", INVALID)
    yield _produce("two of them", GOOD + GOOD, INVALID)
    yield _produce("a control batch behind it", GOOD + _with({"attributes": 0x20}), INVALID)
    yield _produce("zeros", bytes(100), INVALID)
    yield _produce("a message set of v0", _message(0), INVALID)
    yield _produce("a message set of v1", _message(1), INVALID)
    for position in (21, 40, HEADER_SIZE, len(GOOD) - 1):
        damaged = bytearray(GOOD)
        damaged[position] ^= 0x01
        # Bit 0 of the low attributes byte is a codec; the CRC is checked first.
        yield _produce(f"a flipped bit at {position}", bytes(damaged), CORRUPT)
    large = build_batch([Record(0, STAMP, None, bytes(1_048_588), ())])
    yield _produce("larger than max.message.bytes", large, TOO_LARGE)


RECORD_BODIES = [
    ("no key", [b"\0\0\0\x01\x02v\0"]),
    ("key of -2 bytes", [b"\0\0\0\x03\x02v\0"]),
    ("key beyond the record", [b"\0\0\0\x7ek\x02v\0"]),
    ("key of 2^31-1 bytes", [b"\0\0\0\xfe\xff\xff\xff\x0fk\x02v\0"]),
    ("value beyond the record", [b"\0\0\0\x02k\x7ev\0"]),
    ("value of -2 bytes", [b"\0\0\0\x02k\x03\0"]),
    ("a varint of six bytes", [b"\0\0\0\x80\x80\x80\x80\x80\x01k\x02v\0"]),
    ("a varint that does not end", [b"\0\0\0\xff\xff\xff\xff\xff\xff"]),
    ("a timestamp of eleven bytes", [b"\0" + b"\x80" * 10 + b"\x01\0\x02k\x02v\0"]),
    ("-1 headers", [b"\0\0\0\x02k\x02v\x01"]),
    ("2^31-1 headers", [b"\0\0\0\x02k\x02v\xfe\xff\xff\xff\x0f"]),
    ("one header that is not there", [b"\0\0\0\x02k\x02v\x02"]),
    ("a header without a name", [b"\0\0\0\x02k\x02v\x02\x01\x01"]),
    ("a header beyond the record", [b"\0\0\0\x02k\x02v\x02\x7eh\x01"]),
    ("a header's name no UTF-8", [b"\0\0\0\x02k\x02v\x02\x04\xff\xff\x01"]),
    ("bytes behind the headers", [b"\0\0\0\x02k\x02v\0\0"]),
    ("offset 1 first", [b"\0\0\x02\x02k\x02v\0"]),
    ("offset -1 first", [b"\0\0\x01\x02k\x02v\0"]),
    ("offset 0 twice", [b"\0\0\0\x02k\x02v\0", b"\0\0\0\x02k\x02v\0"]),
    ("a gap in the offsets", [b"\0\0\0\x02k\x02v\0", b"\0\0\x04\x02k\x02v\0"]),
    ("a later timestamp than the header's", [b"\0\x7e\0\x02k\x02v\0"]),
]


def _records() -> Iterator[Vector]:
    for name, bodies in RECORD_BODIES:
        yield _produce(f"record: {name}", _batch_of(_framed(bodies), len(bodies)), INVALID, "keyed")
    good = b"\0\0\0\x02k\x02v\0"
    for name, body, count in [
        ("of length -1", b"\x01" + good, 1),
        ("of length 0", b"\0", 1),
        ("of length 2^31-1", b"\xfe\xff\xff\xff\x0f" + good, 1),
        ("that is shorter than it says", b"\x20" + good, 1),
        ("counted twice", _framed([good]), 2),
        ("counted a million times", _framed([good]), 1_000_000),
        ("with another behind it", _framed([good, good]), 1),
        ("not there at all", b"", 1),
    ]:
        yield _produce(f"record: {name}", _batch_of(body, count), INVALID, "keyed")
    yield _produce("record: as it should be", _batch_of(_framed([good]), 1), NONE, "keyed")


def _codecs() -> Iterator[Vector]:
    """Yield bytes that are not in the format of the codec that the attributes name."""
    body = _framed([b"\0\0\0\x02k\x02v\0"])
    for codec in list(Compression)[1:]:
        packed = _compress(codec, body)
        for name, data in {
            "garbage": b"\xde\xad\xbe\xef" * 20,
            "nothing": b"",
            "zeros": bytes(50),
            "cut short": packed[: len(packed) // 2],
            "the magic alone": packed[:4],
            "a damaged middle": _damaged(packed),
            "of no records": _compress(codec, b""),
        }.items():
            batch = _batch_of(data, 1, codec)
            yield _produce(f"{codec.name}: {name}", batch, INVALID, "keyed")
        batch = _batch_of(packed, 1, codec)
        yield _produce(f"{codec.name}: as it should be", batch, NONE, "keyed")
    xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    zstd = b"\x28\xb5\x2f\xfd"
    for name, codec, data in [
        ("xerial, block of 2^31-1", Compression.SNAPPY, xerial + b"\x7f\xff\xff\xff"),
        ("xerial, block of -1", Compression.SNAPPY, xerial + b"\xff\xff\xff\xff"),
        ("xerial, no block", Compression.SNAPPY, xerial),
        ("raw, 4 GB promised", Compression.SNAPPY, b"\xff\xff\xff\xff\x0f\0a"),
        ("window of 2 TB", Compression.ZSTD, zstd + b"\x00\xff" + bytes(20)),
        ("2^64-1 bytes promised", Compression.ZSTD, zstd + b"\xe0" + b"\xff" * 8 + b"\x01\0\0"),
        ("a dictionary", Compression.ZSTD, zstd + b"\x23\x01\0\0\0\x01\x01\0\0"),
    ]:
        batch = _batch_of(data, 1, codec)
        yield _produce(f"{codec.name}: {name}", batch, INVALID, "keyed")


def _damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + b"\xff\xff\xff\xff" + data[middle + 4 :]


def _bombs() -> Iterator[Vector]:
    """Yield decompression bombs: 1 GB in each codec that compresses it into a legal batch."""
    for codec in (Compression.GZIP, Compression.ZSTD):
        for name, parts in {"1 GB": 1, "1 GB in many frames": 64}.items():
            content = partial(_bomb_request, codec, parts)
            yield Vector(
                f"batch: {codec.name}: a bomb of {name}", content, INVALID, produce.API, VERSION
            )
    for codec in (Compression.LZ4, Compression.SNAPPY):
        data = _compress(codec, bytes(18 << 20))
        expected = TOO_LARGE if len(data) > 1_048_588 else INVALID
        batch = _batch_of(data, 1, codec)
        yield _produce(f"{codec.name}: a bomb of 18 MB", batch, expected, "keyed")


@cache
def _bomb_request(codec: Compression, parts: int) -> bytes:
    return request_with("keyed", _batch_of(_bomb(codec, parts), 1, codec))


def _bomb(codec: Compression, parts: int) -> bytes:
    size = (1 << 30) // parts
    if codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(bytes(size), 1)) * parts
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = bytes(1 << 20)
    packed = b"".join(packer.compress(chunk) for _ in range(size >> 20)) + packer.flush()
    return packed * parts


def _compress(codec: Compression, data: bytes) -> bytes:
    tools = {
        Compression.GZIP: cramjam.gzip.compress,
        Compression.SNAPPY: cramjam.snappy.compress_raw,
        # cramjam links the blocks, which is refused.
        Compression.LZ4: partial(frame.compress, block_linked=False),
        Compression.ZSTD: cramjam.zstd.compress,
    }
    return bytes(tools[codec](data))


def _framed(bodies: Sequence[bytes]) -> bytes:
    out = bytearray()
    for body in bodies:
        write_varint(out, len(body))
        out += body
    return bytes(out)


def _batch_of(body: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """Return a batch with `body` and a header that is right for `count` records."""
    head = bytearray(GOOD[:HEADER_SIZE]) + body
    values = {
        "length": len(head) - 12,
        "attributes": int(codec),
        "last offset delta": count - 1,
        "record count": count,
    }
    return _with(values, bytes(head))


def _with(values: dict[str, int], batch: bytes = GOOD) -> bytes:
    """Return `batch` with other values in its header."""
    out = bytearray(batch)
    for field, value in values.items():
        at, form = FIELDS[field]
        struct.pack_into(form, out, at, value)
    if "crc" not in values:
        struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def _message(magic: int) -> bytes:
    """Return a message of the formats before v2, which Kafka 4 dropped."""
    stamp = struct.pack(">q", STAMP) if magic else b""
    body = (
        struct.pack(">bb", magic, 0) + stamp + struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def request_with(topic: str, records: bytes | None) -> bytes:
    """Return a Produce request to partition 0 with `records` as its batch."""
    size = -1 if records is None else len(records)
    body = (
        struct.pack(">hhii", -1, -1, 1000, 1)
        + string(topic.encode())
        + struct.pack(">iii", 1, 0, size)
        + (records or b"")
    )
    return request(produce.API, VERSION, body)


def _produce(name: str, records: bytes | None, expected: ErrorCode, topic: str = "plain") -> Vector:
    data = request_with(topic, records)
    return Vector(f"batch: {name}", data, expected, produce.API, VERSION)
