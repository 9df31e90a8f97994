"""Every client writes with every codec, and every client reads the records."""

from random import Random
from typing import Any

import pytest

from tests.integration.interop.clients import CODECS, KINDS
from tests.integration.interop.conftest import Start
from tests.integration.interop.message import Message

pytestmark = pytest.mark.xdist_group("interop-data")

LARGEST = 1_048_588
"""The default of max.message.bytes: the bytes of a batch."""
AROUND = 61 + 11
"""The bytes of a batch in addition to one large value without key and headers."""
ROOM = 5_000_000
CAN_WRITE_NOTHING = ("confluent", "java")
"""The other two refuse a message with neither key nor value themselves."""


def messages(writer: str) -> list[Message]:
    found = [
        Message(b"key", b"value", (("h", b"1"), ("h", b"2"), ("empty", b""))),
        Message(None, b"without a key"),
        Message(b"", b""),
        Message(b"tombstone", None),
        Message(b"one byte", b"x"),
        Message("schlüssel".encode(), "wert €".encode(), (("名", b"\x00\xff"),)),
        Message(b"noise", Random(1).randbytes(70_000)),
        Message(b"large", bytes(range(256)) * 2000),
    ]
    if writer in CAN_WRITE_NOTHING:
        found.append(Message(None, None))
    return [each._replace(timestamp=1_700_000_000_000 + at) for at, each in enumerate(found)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", KINDS)
def test_every_client_reads_what_another_wrote(client: Start, writer: str, codec: str) -> None:
    topic = f"{writer}-{codec}"
    written = messages(writer)
    offsets = client(writer).write(topic, written, codec)
    assert offsets == list(range(len(written)))
    for reader in KINDS:
        assert client(reader).read(topic, len(written)) == written, reader


@pytest.mark.parametrize("writer", KINDS)
def test_records_of_every_size_up_to_the_largest_batch_are_read_back(
    client: Start, writer: str
) -> None:
    topic = f"sizes-{writer}"
    sizes = (1, 63, 64, 8191, 8192, 16_384, 65_536, LARGEST - AROUND)
    written = [Message(None, Random(size).randbytes(size)) for size in sizes]
    limit: dict[str, Any] = {
        "message_max_bytes" if writer == "confluent" else "max_request_size": ROOM
    }
    for each in written:
        client(writer).write(topic, [each], **limit)
    for reader in KINDS:
        assert client(reader).read(topic, len(written)) == written, reader
    with pytest.raises(Exception, match=r"(?i)too.?large|larger than"):
        client(writer).write(topic, [Message(None, bytes(LARGEST - AROUND + 1))], **limit)


@pytest.mark.parametrize("reader", KINDS)
def test_consumers_seek_by_timestamp(client: Start, reader: str) -> None:
    topic = f"since-{reader}"
    written = [Message(None, b"%d" % at, timestamp=1000 * at) for at in range(1, 21)]
    for start in range(0, 20, 5):
        client("java").write(topic, written[start : start + 5], "lz4")
    for since, first in ((0, 0), (1000, 0), (1001, 1), (12_500, 12), (20_000, 19)):
        count = len(written) - first
        assert client(reader).read(topic, count, since=since) == written[first:], since
