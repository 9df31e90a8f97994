"""The fuzz targets. A target takes any bytes, and may refuse them with `REFUSALS` only."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns.decode import decode
from barnabas.protocol.codec import decoder, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader
from barnabas.protocol.header import decode_request_header, decode_response_header
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.schema import APIS, Type, api, fields_of
from barnabas.security.sasl import oauthbearer, plain, scram
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism, StandIns
from barnabas.security.sasl.exchange import AuthenticationFailed, Challenge, OffLoop

MAX_FRAME: Final = 1 << 16
MAX_DECOMPRESSED: Final = 1 << 20

REQUESTS: Final = [(key, version) for key in APIS for version in api(key).versions]


def filled(cls: Any, version: int) -> Any:
    """Return a message with one element in every array and a value in every field."""
    return cls(**{f.name: _value(f.type, version) for f in fields_of(cls) if f.exists(version)})


def _value(kind: Type, version: int) -> Any:
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
    step = 8 * data[0] + 1 if data else 1
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
    for batch in decode([fetched], "t", 0, *limit, headers=True, max_bytes=MAX_DECOMPRESSED):
        batch.validate(full=True)
        rows += batch.num_rows
    expected = [
        record
        for position, header in found
        for record in iter_records(data, position, header, max_bytes=MAX_DECOMPRESSED)
        if limit[0] <= record.offset < limit[1]
    ]
    assert rows == len(expected)


SCRAM: Final = ScramMechanism.SHA_256
NONCE: Final = "nonce"
SALTED: Final = bytes(32)
"""The salted password of alice; making one for each input would take milliseconds."""


class _AnyKey:
    """A key set with one key, which signed every token."""

    def find(self, _key_id: str | None, _algorithm: str) -> "_AnyKey":
        return self

    def claims(self, _token: str, _algorithm: str) -> dict[str, Any]:
        return {"sub": "alice", "iat": 0, "exp": 1, "nbf": None, "iss": None, "aud": None}


def _fetched() -> Any:
    fetched: Future[Any] = Future()
    fetched.set_result(_AnyKey())
    return fetched


def _scram_server(message: bytes) -> Any:
    credential = ScramCredential.of_salted(SCRAM, SALTED, b"salt", 4096)
    server = scram.ScramServer(SCRAM, {"alice": credential}.get, StandIns(b"cluster"))
    return server.authenticate(message, NONCE, 0)


SERVERS: Final[list[Callable[[bytes], Any]]] = [
    lambda first: plain.authenticate(first, plain.JaasUsers({"user_alice": "secret"}).find),
    _scram_server,
    lambda first: oauthbearer.authenticate(
        first, oauthbearer.KeySet(_fetched, 1, 1), oauthbearer.TokenRules(), 0
    ),
]


def sasl(data: bytes) -> None:
    """Authenticate a client by a mechanism that the first byte chooses; 0xFF ends a message."""
    if not data:
        return
    message, *others = data[1:].split(b"\xff")
    exchange = SERVERS[data[0] % len(SERVERS)](message)
    try:
        step = next(exchange)
        while True:
            if isinstance(step, Challenge):
                step = exchange.send(others.pop(0) if others else b"")
            else:
                work = step.function if isinstance(step, OffLoop) else step.awaitable.result
                step = exchange.send(work())
    except StopIteration as returned:
        if returned.value.principal.name != "alice":
            raise AssertionError("another principal") from None


def sasl_client(data: bytes) -> None:
    """Read the messages of a server in an exchange of SCRAM; 0xFF ends a message."""
    first, _, last = data.partition(b"\xff")
    client = scram.login(SCRAM, "alice", "secret", NONCE)
    next(client)
    assert isinstance(client.send(first), OffLoop)
    client.send(SALTED)
    try:
        client.send(last)
    except StopIteration:
        return


REFUSALS: Final = (ProtocolError, AuthenticationFailed)

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "frame": frame,
    "header": header,
    "request": request,
    "batches": batches,
    "columns": columns,
    "sasl": sasl,
    "sasl_client": sasl_client,
}


def run(target: str, data: bytes) -> None:
    """Run a target on one input; any exception other than `REFUSALS` is a finding."""
    try:
        TARGETS[target](data)
    except REFUSALS:
        return
