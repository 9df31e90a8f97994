"""A script that writes the committed seeds of the corpus: one valid input of each kind."""

from collections.abc import Iterator
from pathlib import Path

from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.schema import api
from barnabas.security.sasl import scram
from tests.support.fuzz_targets import NONCE, REQUESTS, SALTED, SCRAM, SERVERS, filled

CORPUS = Path(__file__).parent / "corpus"


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield (target, file name, input)."""
    last = dict(REQUESTS)
    for index, (key, version) in enumerate(REQUESTS):
        if version in (api(key).versions[0], api(key).flexible, last[key]):
            name = f"{api(key).name}-v{version}"
            body = encode(filled(api(key).request, version), version)
            yield "request", name, index.to_bytes(2, "big") + body
            head = encode_request_header(key, version, 7, "seed")
            yield "header", name, head
            if version == last[key]:
                message = head + body
                yield "frame", name, b"\x10" + len(message).to_bytes(4, "big") + message
    records = [Record(i, i, b"key", b"value" * 20, (("h", b"x"),)) for i in range(3)]
    for codec in Compression:
        for target in ("batches", "columns"):
            yield target, codec.name.lower(), build_batch(records, compression=codec)
    yield "sasl", "plain", b"\0\0alice\0secret"
    client_messages, server_messages = _scram_messages()
    yield "sasl", "scram", b"\1" + b"\xff".join(client_messages)
    yield "sasl", "oauthbearer", b"\2n,,\x01auth=Bearer eyJhbGciOiJFUzI1NiJ9.e30.AA\x01a=b\x01\x01"
    yield "sasl_client", "scram", b"\xff".join(server_messages)


def _scram_messages() -> tuple[list[bytes], list[bytes]]:
    """Return the messages of a client and of a server; their nonces are fixed."""
    client = scram.login(SCRAM, "alice", "secret", NONCE)
    first = next(client)
    server = SERVERS[1](first)
    server_first = next(server).data
    client.send(server_first)
    final = client.send(SALTED)
    try:
        server.send(final)
    except StopIteration as returned:
        return [first, final], [server_first, returned.value.answer]
    raise AssertionError("the server waits for a further message")


def main() -> None:
    for target, name, data in seeds():
        path = CORPUS / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
