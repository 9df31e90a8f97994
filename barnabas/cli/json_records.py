"""Records as JSON objects, one a line: `consume --json` writes them, `produce` reads them.

Bytes that are not UTF-8 are in base64: in `key_base64` or `value_base64` in place of `key` or
`value`, and in an object {"base64": ...} in place of the text of a header.

Imported only for these lines, because pydantic takes a tenth of a second.
"""

import base64
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json as dump

from barnabas.client.consumer import Message
from barnabas.config.faults import first_fault
from barnabas.operations.answers.records import Encoded
from barnabas.protocol.records.record import Headers


class GivenRecord(BaseModel):
    """A record that `produce --format json` reads: a `Record`, or parts of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[tuple[str, str | Encoded | None]] = []
    topic: str | None = None
    """Without effect, as `offset`."""
    partition: int | None = None
    """The partition, with --same-partitions."""
    topic_partitions: int | None = None
    """With --same-partitions, the number of partitions that the topic must have."""
    offset: int | None = None
    timestamp_ms: int | None = None


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


def to_json(message: Message, topic_partitions: int | None) -> bytes:
    """Return a record as a line, as the answer Record has it, but in a fraction of its time."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
    }
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
