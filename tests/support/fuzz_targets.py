"""The fuzz targets. A target takes any bytes, and may refuse them with `REFUSALS` only."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from resource import RUSAGE_SELF, getrusage
from time import thread_time
from typing import Any, Final

from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns.decode import decode
from barnabas.protocol.apis import APIS, api
from barnabas.protocol.codec import decoder, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader
from barnabas.protocol.header import decode_request_header, decode_response_header
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.schema import WireType, fields_of
from barnabas.security.certificates import InvalidCertificate, parse_certificate
from barnabas.security.principal_mapping import parse_rules
from barnabas.security.sasl.exchange import AuthenticationFailed
from tests.support.fuzz_connections import authentication, login, tls
from tests.support.fuzz_sasl import CLIENTS, SEPARATOR, SERVERS, authenticate, log_in

MAX_FRAME: Final = 1 << 16
MAX_DECOMPRESSED: Final = 1 << 20

REQUESTS: Final = [(key, version) for key in APIS for version in api(key).versions]


def filled(cls: Any, version: int) -> Any:
    """Return a message with one element in every array and a value in every field."""
    return cls(**{f.name: _value(f.type, version) for f in fields_of(cls) if f.exists(version)})


def _value(kind: WireType, version: int) -> Any:
    if kind.item is not None:
        return [_value(kind.item, version)]
    if kind.struct is not None:
        return filled(kind.struct, version)
    values = {"string": "s", "uuid": bytes(range(16)), "bool": True, "float64": 1.5}
    if kind.kind == "bytes":
        return b"bytes"
    if kind.kind == "records":
        return build_batch([Record(0, 1, b"k", b"v", ())])
    return values.get(kind.kind, 1)


def frame(data: bytes) -> None:
    """Cut a byte stream into frames; the first byte gives the size of the received pieces."""
    reader = FrameReader(MAX_FRAME)
    step = max(8 * data[0] + 1 if data else 1, len(data) // 16)
    for start in range(1, len(data), step):
        reader.feed(data[start : start + step])
        while (found := reader.next_frame()) is not None:
            assert len(found) <= MAX_FRAME
        assert reader.capacity <= 1 << 19


def header(data: bytes) -> None:
    """Decode headers of requests and responses."""
    _, offset = decode_request_header(data)
    assert offset <= len(data)
    _, offset = decode_response_header(3, 9, data)
    assert offset <= len(data)


def request(data: bytes) -> None:
    """Decode a request of any version, chosen by the first two bytes, and encode it again."""
    if len(data) < 2:
        return
    key, version = REQUESTS[int.from_bytes(data[:2], "big") % len(REQUESTS)]
    message = decoder(api(key).request, version)(data, 2, False)
    encode(message, version)


def batches(data: bytes) -> None:
    """Read record batches: headers, CRC, records of every codec, markers."""
    for position, found in iter_headers(data):
        crc_matches(data, position, found)
        if found.is_control:
            read_marker(data, position, found)
        for _ in iter_records(data, position, found, max_bytes=MAX_DECOMPRESSED):
            pass


def columns(data: bytes) -> None:
    """Decode record batches by columns, with the rows of the record-by-record decoder."""
    found = list(iter_headers(data))
    fetched = FetchedBatches(memoryview(data), found, 0, 0, 0, 0)
    limit = -(2**62), 2**62
    rows = 0
    read = partial(decode, headers=True, report=lambda _: None, max_bytes=MAX_DECOMPRESSED)
    for batch in read([fetched], "t", 0, *limit):
        batch.validate(full=True)
        rows += batch.num_rows
    expected = [
        record
        for position, header in found
        if header.last_offset >= limit[0] and header.base_offset < limit[1]
        for record in iter_records(data, position, header, max_bytes=MAX_DECOMPRESSED)
        if limit[0] <= record.offset < limit[1]
    ]
    assert rows == len(expected)


def certificate(data: bytes) -> None:
    """Read the certificate of a client, and map its name to a principal's."""
    found = parse_certificate(data)
    for rules in RULES:
        rules(found.subject)


RULES: Final = [parse_rules("RULE:^CN=(.*?),.*$/$1/L,DEFAULT"), parse_rules("DEFAULT")]


def sasl(data: bytes) -> None:
    """Authenticate a client by a mechanism that the first byte chooses."""
    if data:
        server = [*SERVERS][data[0] % len(SERVERS)]
        authenticate(server, data[1:].split(SEPARATOR))


def sasl_client(data: bytes) -> None:
    """Have a client, chosen by the first byte, read the messages of a broker."""
    if data:
        client = [*CLIENTS][data[0] % len(CLIENTS)]
        log_in(client, data[1:].split(SEPARATOR))


REFUSALS: Final = (ProtocolError, AuthenticationFailed, InvalidCertificate)

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "header": header,
    "frame": frame,
    "request": request,
    "batches": batches,
    "columns": columns,
    "certificate": certificate,
    "sasl": sasl,
    "sasl_client": sasl_client,
    "authentication": authentication,
    "tls": tls,
    "login": login,
}

MAX_S: Final = 0.05
"""The time that one input may take: the event loop is held for so long."""
MAX_GROWTH: Final = 64 << 20
"""The bytes by which one input may raise the peak memory of the process."""


def run(target: str, data: bytes) -> None:
    """Run a target on one input; an exception that is not in `REFUSALS` is a finding.

    So are an input that takes too long, in CPU time, and one that takes too much memory.
    """
    peak = _peak()
    spent = _seconds(target, data)
    growth = _peak() - peak
    assert growth <= MAX_GROWTH, f"an input of {len(data)} bytes takes {growth >> 20} MB"
    if spent > MAX_S:
        # The first input of a kind may compile a codec, and any input may meet the collector.
        spent = min(_seconds(target, data) for _ in range(3))
        assert spent <= MAX_S, f"an input of {len(data)} bytes takes {spent:.3f} s"


def _seconds(target: str, data: bytes) -> float:
    began = thread_time()
    with suppress(*REFUSALS):
        TARGETS[target](data)
    return thread_time() - began


def _peak() -> int:
    return 1024 * getrusage(RUSAGE_SELF).ru_maxrss
