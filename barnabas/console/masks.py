"""Keys, values and headers as text, without the content of masked fields."""

import base64
import json
from collections.abc import Set
from contextlib import suppress
from typing import Any, Final

HIDDEN: Final = "(hidden)"
_MOST_TEXT: Final = 4096
"""The characters of a key or value that are shown."""


def is_hidden(name: str, hidden: Set[str]) -> bool:
    """Whether the field or header with this name is masked."""
    return name.lower() in hidden


def masked(data: bytes | None, hidden: Set[str], *, is_short: bool) -> str | None:
    """Return a key, value or header with its fields masked. One that is not JSON is hidden, because
    its fields are not known; only a key or header that is a plain text is shown."""
    if data is None or not hidden:
        return text_of(data)
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict | list):
            return json_text(value, hidden)
    return text_of(data) if is_short and is_plain(data, hidden) else HIDDEN


def is_plain(data: bytes, hidden: Set[str]) -> bool:
    """Whether a text has no fields: no sign of JSON, and no name of a masked field."""
    try:
        text = data.decode().lower()
    except UnicodeDecodeError:
        return False
    return not any(each in text for each in ("{", "[", "\\", *hidden))


def json_text(value: Any, hidden: Set[str]) -> str:
    """Return a value as JSON with its fields masked."""
    return _cut(json.dumps(without(value, hidden), ensure_ascii=False, default=str))


def without(value: Any, hidden: Set[str]) -> Any:
    """Return a value of JSON with the content of its masked fields replaced by HIDDEN."""
    if isinstance(value, dict):
        return {
            name: HIDDEN if is_hidden(str(name), hidden) else without(each, hidden)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without(each, hidden) for each in value]
    if isinstance(value, str) and hidden:
        return _text_without(value, hidden)
    return value


def _text_without(text: str, hidden: Set[str]) -> str:
    """Return a text in a value of JSON with its masked fields hidden, if it is JSON itself: records
    of an outbox have the event so."""
    if not any(each in text for each in ("{", "[")):
        return text
    try:
        # As it was parsed: of a name with two values, the text would show both.
        return json.dumps(without(json.loads(text), hidden), ensure_ascii=False)
    except RecursionError:
        return HIDDEN
    except ValueError:
        has_field = any(each in text.lower() for each in ("\\", *hidden))
        return HIDDEN if has_field else text


def text_of(data: bytes | None) -> str | None:
    """Return bytes as text, or in base64 if they are not UTF-8."""
    if data is None:
        return None
    try:
        return _cut(data.decode())
    except UnicodeDecodeError:
        return _cut("base64: " + base64.b64encode(data).decode())


def _cut(text: str) -> str:
    more = len(text) - _MOST_TEXT
    return text if more <= 0 else f"{text[:_MOST_TEXT]}… and {more} more characters"
