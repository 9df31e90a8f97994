"""Arrays, strings, nulls, numbers and tagged fields in the bodies of requests."""

import struct
from collections.abc import Iterator

from barnabas.protocol.apis import APIS, api
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    list_offsets,
    metadata,
    offset_fetch,
    produce,
)
from tests.integration.adversary.vectors.vector import CLOSES, Vector, request, string

NONE = ErrorCode.NONE
NO_COORDINATOR = ErrorCode.NOT_COORDINATOR
NO_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
LIST_GROUPS = 16
HUGE = b"\xff\xff\xff\xff\x0f"
"""2^32 - 1, the greatest unsigned varint."""

# (name, API, version, body, expected reaction)
BODIES = [
    ("array of -2 elements, which is null", metadata.API, 1, b"\xff\xff\xff\xfe", NONE),
    ("array of -2^31 elements, which is null", metadata.API, 1, b"\x80\0\0\0", NONE),
    ("array of 2^31-1 elements", metadata.API, 1, b"\x7f\xff\xff\xff", CLOSES),
    ("array of 2^31-1, one there", metadata.API, 1, b"\x7f\xff\xff\xff\0\x01t", CLOSES),
    ("array of one more than there is", metadata.API, 1, b"\0\0\0\x02\0\x01t", CLOSES),
    ("array that is null before it may be", metadata.API, 0, b"\xff\xff\xff\xff", CLOSES),
    ("array that is null where it may be", metadata.API, 1, b"\xff\xff\xff\xff", NONE),
    ("array cut in its count", metadata.API, 1, b"\0\0", CLOSES),
    ("compact array of 2^32-2", metadata.API, 12, HUGE, CLOSES),
    ("compact array, no count", metadata.API, 12, b"", CLOSES),
    ("compact array, six bytes of count", metadata.API, 12, b"\x80\x80\x80\x80\x80\x01", CLOSES),
    ("compact array, 33 bits of count", metadata.API, 12, b"\xff\xff\xff\xff\x1f", CLOSES),
    ("compact array, endless count", metadata.API, 12, b"\xff" * 40, CLOSES),
    ("compact array, count with padding", metadata.API, 12, b"\x81\0\0\0\0", NONE),
    ("compact array, a million of nothing", metadata.API, 12, b"\x81\x80\x40", CLOSES),
    ("compact array that must not be null", describe_groups.API, 5, b"\0\0\0", CLOSES),
    ("string of -1 bytes", describe_groups.API, 0, b"\0\0\0\x01\xff\xff", CLOSES),
    ("string of -2 bytes", describe_groups.API, 0, b"\0\0\0\x01\xff\xfe", CLOSES),
    ("string of -32768 bytes", describe_groups.API, 0, b"\0\0\0\x01\x80\0", CLOSES),
    ("string of 32767 bytes, 2 there", describe_groups.API, 0, b"\0\0\0\x01\x7f\xffab", CLOSES),
    ("string that is no UTF-8", describe_groups.API, 0, b"\0\0\0\x01\0\x02\xc3\x28", CLOSES),
    ("string, overlong UTF-8", describe_groups.API, 0, b"\0\0\0\x01\0\x02\xc0\x80", CLOSES),
    ("string of a surrogate", describe_groups.API, 0, b"\0\0\0\x01\0\x03\xed\xa0\x80", CLOSES),
    ("string above U+10FFFF", describe_groups.API, 0, b"\0\0\0\x01\0\x04\xf7\xbf\xbf\xbf", CLOSES),
    ("string with NUL", describe_groups.API, 0, b"\0\0\0\x01\0\x03a\0b", NO_COORDINATOR),
    ("compact string that is null", describe_groups.API, 5, b"\x02\0\0\0", CLOSES),
    ("compact string beyond the frame", describe_groups.API, 5, b"\x02\xff\x7fa\0\0", CLOSES),
    ("compact string of 2^32-2", describe_groups.API, 5, b"\x02" + HUGE + b"\0\0", CLOSES),
    ("compact string of 32768", describe_groups.API, 5,
     b"\x02\x81\x80\x02" + b"x" * 32768 + b"\0\0", CLOSES),
    ("compact string, no UTF-8", describe_groups.API, 5, b"\x02\x03\xff\xff\0\0", CLOSES),
    ("number cut in the middle", heartbeat.API, 0, string(b"g") + b"\0\0", CLOSES),
    ("string behind it missing", heartbeat.API, 0, string(b"g") + bytes(4), CLOSES),
    ("nullable string of -2, which is null", heartbeat.API, 3,
     string(b"g") + bytes(4) + string(b"m") + b"\xff\xfe", NO_COORDINATOR),
    ("bool of 2", metadata.API, 4, b"\0\0\0\0\x02", NONE),
    ("bool of 255", metadata.API, 4, b"\0\0\0\0\xff", NONE),
    ("bytes behind the message", metadata.API, 1, b"\0\0\0\0" + b"behind", NONE),
    ("tags missing", metadata.API, 12, b"\x01\0\0", CLOSES),
    ("tags: unknown", metadata.API, 12, b"\x01\0\0\x01\x7f\x03abc", NONE),
    ("tags: 2^32-1 of them", metadata.API, 12, b"\x01\0\0" + HUGE, CLOSES),
    ("tags: size beyond the frame", metadata.API, 12, b"\x01\0\0\x01\x7f\x7fabc", CLOSES),
    ("tags: size of 2^32-1", metadata.API, 12, b"\x01\0\0\x01\x7f" + HUGE, CLOSES),
    ("tags: number of six bytes", metadata.API, 12, b"\x01\0\0\x01" + b"\xff" * 6, CLOSES),
    ("tags: 64 empty ones", metadata.API, 12, b"\x01\0\0\x40" + b"\x7f\0" * 64, NONE),
    ("tags: 65 empty ones", metadata.API, 12, b"\x01\0\0\x41" + b"\x7f\0" * 65, CLOSES),
    ("tags: 20000 empty ones", metadata.API, 12,
     b"\x01\0\0\xa0\x9c\x01" + b"\x7f\0" * 20000, CLOSES),
    ("uuid cut in the middle", metadata.API, 12, b"\x02" + bytes(9), CLOSES),
    ("topic without a name or an id", metadata.API, 12, b"\x02" + bytes(16) + bytes(5), NO_NAME),
    ("timestamp cut in the middle", list_offsets.API, 1,
     b"\xff\xff\xff\xff\0\0\0\x01" + string(b"t") + b"\0\0\0\x01" + bytes(7), CLOSES),
    ("coordinator of an unknown type", find_coordinator.API, 1,
     string(b"g") + b"\x7f", ErrorCode.INVALID_REQUEST),
    ("groups of a group, cut", offset_fetch.API, 8, b"\x02\x02g\x02\x02t\xff", CLOSES),
    ("records of -2 bytes, which are null", produce.API, 8,
     b"\xff\xff\xff\xff\0\0\0\x64\0\0\0\x01" + string(b"plain") + b"\0\0\0\x01"
     + bytes(4) + b"\xff\xff\xff\xfe", ErrorCode.INVALID_RECORD),
    ("records beyond the frame", produce.API, 8,
     b"\xff\xff\xff\xff\0\0\0\x64\0\0\0\x01" + string(b"plain") + b"\0\0\0\x01"
     + bytes(4) + b"\x7f\xff\xff\xff", CLOSES),
    ("compact records of 2^32-2", produce.API, 9,
     b"\0\xff\xff\0\0\0\x64\x02\x06plain\x02" + bytes(4) + HUGE + b"\0\0\0", CLOSES),
    ("acks of 2", produce.API, 8, b"\xff\xff\0\x02" + struct.pack(">ii", 100, 1)
     + string(b"plain") + b"\0\0\0\x01" + bytes(8), ErrorCode.INVALID_REQUIRED_ACKS),
    ("no topics at all", produce.API, 8, b"\xff\xff\xff\xff\0\0\0\x64\0\0\0\0", NONE),
    ("a wait of -2^31 ms", fetch.API, 4, struct.pack(">iiiibi", -1, -(2**31), 1, 1, 0, 0), NONE),
    ("sizes of -2^31 bytes", fetch.API, 4,
     struct.pack(">iiiibi", -1, 0, -(2**31), -(2**31), 0, 0), NONE),
    ("isolation level of 77", fetch.API, 4, struct.pack(">iiiibi", -1, 0, 1, 1, 77, 0), NONE),
    ("tag of a known field, too long", fetch.API, 12,
     struct.pack(">iiibii", 0, 1, 1, 0, 0, -1) + b"\x01\x01\x01" + b"\x01\x00\x09\x02c" + bytes(8),
     CLOSES),
    ("tag of a known field, too short", fetch.API, 12,
     struct.pack(">iiibii", 0, 1, 1, 0, 0, -1) + b"\x01\x01\x01" + b"\x01\x00\x01\x02c", CLOSES),
]  # fmt: skip


def vectors() -> Iterator[Vector]:
    for name, each, version, body, expected in BODIES:
        data = request(each, version, body)
        yield Vector(f"{each.name} v{version}: {name}", data, expected, each, version)
    for key in sorted(APIS):
        yield from _of_every_api(key)


def _of_every_api(key: int) -> Iterator[Vector]:
    each = api(key)
    last = each.versions[-1]
    if each.flexible is None or each.name in ("ApiVersions", "ListGroups"):
        return
    for name, body in {"no body": b"", "a body of 0xff": b"\xff" * 64}.items():
        yield Vector(f"{each.name} v{last}: {name}", request(each, last, body), CLOSES)
