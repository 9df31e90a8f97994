"""Writes the committed seeds of the corpus: one valid input of each kind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.schema import Type, api, fields_of
from tests.fuzz.targets import REQUESTS

CORPUS = Path(__file__).parent / "corpus"


def filled(cls: Any, version: int) -> Any:
    """A message with one element in every array and a value in every field."""
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


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """(target, file name, input)."""
    last = dict(REQUESTS)
    for index, (key, version) in enumerate(REQUESTS):
        if version in (api(key).versions[0], api(key).flexible, last[key]):
            name = f"{api(key).name}-v{version}"
            body = encode(filled(api(key).request, version), version)
            yield "request", name, bytes([index]) + body
            head = encode_request_header(key, version, 7, "seed")
            yield "header", name, head
            if version == last[key]:
                message = head + body
                yield "frame", name, b"\x10" + len(message).to_bytes(4, "big") + message
    records = [Record(i, i, b"key", b"value" * 20, (("h", b"x"),)) for i in range(3)]
    for codec in Compression:
        yield "batches", codec.name.lower(), build_batch(records, compression=codec)


def main() -> None:
    assert len(REQUESTS) < 256, "one byte chooses the request"
    for target, name, data in seeds():
        path = CORPUS / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
