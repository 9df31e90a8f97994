"""Records as JSON objects, one a line: `consume --json` writes them, `produce` reads them.

Bytes that are not UTF-8 are in base64: in `key_base64` or `value_base64` in place of `key` or
`value`, and in an object {"base64": ...} in place of the text of a header.
"""

import base64
import json
from typing import Any, NamedTuple

from barnabas.client.consumer import Message
from barnabas.protocol.records.record import Headers


class JsonRecord(NamedTuple):
    """A record of a line; `partition` and `timestamp` (in ms) are None if the line lacks them."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None


def place_of(message: Message) -> dict[str, Any]:
    """Return the fields that say which record it is, and its timestamp in ms."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
    }


def to_json(message: Message) -> bytes:
    """Return a record as a line."""
    row = place_of(message)
    for name, data in (("key", message.key), ("value", message.value)):
        try:
            row[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            row[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if message.headers:
        row["headers"] = [[name, _header_text(data)] for name, data in message.headers]
    return json.dumps(row).encode() + b"\n"


def _header_text(data: bytes | None) -> Any:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def from_json(line: bytes) -> JsonRecord:
    """Parse a line; fields that are not about the record's content are ignored. Raises
    ValueError."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    headers = row.get("headers", [])
    if not isinstance(headers, list) or not all(map(_is_header, headers)):
        raise ValueError("headers are a list of [name, value]")
    partition, timestamp = row.get("partition"), row.get("timestamp")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is not None and type(number) is not int:
            raise ValueError(f"{name} is not a number")
    return JsonRecord(
        _field(row, "key"),
        _field(row, "value"),
        tuple((name, _header_bytes(value)) for name, value in headers),
        partition,
        timestamp,
    )


def _field(row: dict[str, Any], name: str) -> bytes | None:
    text, encoded = row.get(name), row.get(f"{name}_base64")
    if encoded is not None:
        return _decoded(f"{name}_base64", encoded)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    return None if text is None else text.encode()


def _is_header(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _decoded("base64", value["base64"])
    if value is not None and not isinstance(value, str):
        raise ValueError("the value of a header is no text")
    return None if value is None else value.encode()


def _decoded(name: str, text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
