"""The search of records: by key, by header, and by a path into JSON values.

What is masked is not found either: otherwise a search would tell it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas.client.consumer import Message
from barnabas.console.masks import HIDDEN, is_hidden, is_plain, without

_STEP: Final = re.compile(
    r"""\.?(?P<name>[^.\[\]"*]+) | \.?(?P<any>\*) | \[\*\]
    | \[(?P<index>-?\d{1,9})\] | \[(?P<quoted>"(?:[^"\\]|\\.)*")\]""",
    re.VERBOSE | re.ASCII,
)
_MOST_STEPS: Final = 32
_MOST_FOUND: Final = 1000
"""The values that a path with * leads to in one record; others are not compared."""
PARAMETERS: Final = ("key", "header", "header_value", "path", "path_value")

Step = str | int | None
"""The name of a field, the index in an array, or None for all of them."""


def parse_path(text: str) -> list[Step]:
    """Return the steps of a path such as `$.items[0].name`, `items[*].name` or `["odd.name"]`.

    Raises ValueError.
    """
    rest, steps = text.removeprefix("$"), list[Step]()
    while rest:
        found = _STEP.match(rest)
        if found is None or len(steps) >= _MOST_STEPS:
            raise ValueError(f"{text!r} is no path such as $.items[0].name or items[*].name")
        if found["name"] is not None:
            steps.append(found["name"])
        elif found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["quoted"] is not None:
            steps.append(json.loads(found["quoted"], strict=False))
        else:
            steps.append(None)
        rest = rest[found.end() :]
    return steps


class Search(NamedTuple):
    """The conditions of a search for records, all of which hold; None for one that is not set."""

    key: bytes | None
    header: str | None
    header_value: str | None
    path: Sequence[Step] | None
    path_value: str | None
    hidden: frozenset[str]

    @classmethod
    def of(cls, given: Mapping[str, str], masks: Iterable[str]) -> "Search":
        """Return the search that parameters ask for. Raises ValueError, also for a masked field."""
        hidden = frozenset(each.lower() for each in masks)
        key, header, header_value, path, value = (given.get(each) or None for each in PARAMETERS)
        steps = None if path is None else parse_path(path)
        for name in (header, *(steps or ())):
            if isinstance(name, str) and is_hidden(name, hidden):
                raise ValueError(f"{name} is masked, and cannot be searched")
        if (header_value and header is None) or (value and path is None):
            raise ValueError("A value needs the name of its header, or its path")
        wanted_key = None if key is None else key.encode("utf-8", "surrogatepass")
        return cls(wanted_key, header, header_value, steps, value, hidden)

    def matches(self, message: Message) -> bool:
        """Whether a record has all that is wanted."""
        return self._has_key(message) and self._has_header(message) and self._has_value(message)

    def _has_key(self, message: Message) -> bool:
        if self.key is None:
            return True
        return message.key == self.key and self._may_be_known(self.key)

    def _has_header(self, message: Message) -> bool:
        return self.header is None or any(
            name == self.header and (self.header_value is None or self._is_header(data))
            for name, data in message.headers
        )

    def _is_header(self, data: bytes | None) -> bool:
        wanted = (self.header_value or "").encode("utf-8", "surrogatepass")
        return data == wanted and self._may_be_known(wanted)

    def _may_be_known(self, data: bytes) -> bool:
        # JSON could have a masked field, even one that is lost when it is parsed.
        return not self.hidden or is_plain(data, self.hidden)

    def _has_value(self, message: Message) -> bool:
        if self.path is None:
            return True
        with suppress(ValueError, RecursionError):
            value = json.loads(message.value or b"")
            found = _follow([without(value, self.hidden)], self.path)
            return any(self.path_value is None or _is(each, self.path_value) for each in found)
        return False


def _follow(values: list[Any], path: Sequence[Step]) -> list[Any]:
    """Return the values to which a path leads."""
    for step in path:
        found: list[Any] = []
        for value in values:
            if step is None and isinstance(value, dict | list):
                found += value.values() if isinstance(value, dict) else value
            elif isinstance(step, str) and isinstance(value, dict) and step in value:
                found.append(value[step])
            elif isinstance(step, int) and isinstance(value, list):
                found += value[step : step + 1 or None]
            if len(found) > _MOST_FOUND:
                break
        values = found[:_MOST_FOUND]
    return [each for each in values if each is not HIDDEN]


def _is(value: Any, text: str) -> bool:
    """Whether a value is this text, or is what the text is as JSON: 17, true, null."""
    if isinstance(value, str):
        return value == text
    with suppress(ValueError, RecursionError):
        return json.dumps(value, sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)
    return False
