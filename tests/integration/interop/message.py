"""A message in the exchange format of the clients' programs: JSON, with bytes in base64."""

import base64
from typing import Any, NamedTuple


class Message(NamedTuple):
    """A message that one client writes and another must read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_700_000_000_000

    def to_json(self) -> dict[str, Any]:
        return {
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": [{"key": key, "value": _text(value)} for key, value in self.headers],
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Message":
        headers = ((each["key"], _bytes(each["value"])) for each in fields["headers"])
        key, value = _bytes(fields["key"]), _bytes(fields["value"])
        return cls(key, value, tuple(headers), fields["timestamp"])


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
