"""Records as JSON objects, one a line: `consume --json` writes them, `produce` reads them.

Bytes that are not UTF-8 are in base64: in `key_base64` or `value_base64` in place of `key` or
`value`, and in an object {"base64": ...} in place of the text of a header.

Imported only for these lines, because pydantic takes a tenth of a second.
"""

import base64
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json as dump

from barnabas.cli.answers.records import Encoded, GivenRecord
from barnabas.client.consumer import Message
from barnabas.config.faults import first_fault
from barnabas.protocol.records.record import Headers

_read: Final = GivenRecord.model_validate_json


class JsonRecord(NamedTuple):
    """A record of a line; `partition`, `topic_partitions` and `timestamp` (in ms) are None if the
    line lacks them."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    topic_partitions: int | None
    timestamp: int | None


def place_of(message: Message) -> dict[str, Any]:
    """Return the fields that say which record it is, and its timestamp in ms."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
    }


def to_json(message: Message, topic_partitions: int | None) -> bytes:
    """Return a record as a line, as the model Record has it, but in a fraction of its time."""
    row = place_of(message)
    if topic_partitions is not None:
        row["topic_partitions"] = topic_partitions
    for name, data in (("key", message.key), ("value", message.value)):
        try:
            row[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            row[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if message.headers:
        row["headers"] = [[name, _header_text(data)] for name, data in message.headers]
    return dump(row) + b"\n"


def _header_text(data: bytes | None) -> Any:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def from_json(line: bytes) -> JsonRecord:
    """Parse a line; raises ValueError with a text of one line."""
    try:
        given = _read(line)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    return JsonRecord(
        _bytes("key_base64", given.key, given.key_base64),
        _bytes("value_base64", given.value, given.value_base64),
        tuple((name, _header_bytes(value)) for name, value in given.headers),
        given.partition,
        given.topic_partitions,
        given.timestamp_ms,
    )


def _header_bytes(value: str | Encoded | None) -> bytes | None:
    if isinstance(value, Encoded):
        return _bytes("base64", None, value.base64)
    return None if value is None else value.encode()


def _bytes(name: str, text: str | None, encoded: str | None) -> bytes | None:
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
