"""The format strings of kcat, compiled to functions that print a record."""

import re
from collections.abc import Callable, Sequence

import click

from barnabas.cli.arguments import unescape
from barnabas.cli.tables import escape
from barnabas.client.consumer import Message

Render = Callable[[Message], bytes]

_FIELD = re.compile(r"%(.?)", re.DOTALL)
_NULL = b"NULL"


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(message: Message) -> bytes:
    return b",".join(
        name.encode() + b"=" + (_NULL if value is None else value)
        for name, value in message.headers
    )


_FIELDS: dict[str, Render] = {
    "S": lambda m: b"%d" % _length(m.value),
    "R": lambda m: _length(m.value).to_bytes(4, "big", signed=True),
    "K": lambda m: b"%d" % _length(m.key),
    "t": lambda m: m.topic.encode(),
    "p": lambda m: b"%d" % m.partition,
    "o": lambda m: b"%d" % m.offset,
    "T": lambda m: b"%d" % m.timestamp,
    "h": _headers,
}


def _escaped(field: Render) -> Render:
    return lambda m: escape(field(m).decode(errors="backslashreplace")).encode()


def compile_format(text: str, *, null: bytes = b"", for_terminal: bool = False) -> Render:
    r"""Compile a format such as `%t [%p] at %o: key %k, value %s\n` to a function of the record.

    Fields: %s value, %S length of the value, %R the same length as four bytes (big-endian), %k key,
    %K length of the key, %t topic, %p partition, %o offset, %T timestamp in ms, %h headers. A null
    key or value is printed as `null`. `for_terminal` escapes what a terminal would obey in fields,
    but not in the rest of the format. Raises a usage error for an unknown field or escape.
    """
    fields: dict[str, Render] = {
        **_FIELDS,
        "s": lambda m: null if m.value is None else m.value,
        "k": lambda m: null if m.key is None else m.key,
    }
    if for_terminal:
        fields |= {name: _escaped(fields[name]) for name in "skht"}

    template, parts = b"", list[Render]()
    # The pattern has one group, so the split returns text and field names alternately.
    for index, part in enumerate(_FIELD.split(text)):
        if index % 2 == 0:
            template += unescape(part).replace(b"%", b"%%")
        elif part == "%":
            template += b"%%"
        elif part in fields:
            template += b"%b"
            parts.append(fields[part])
        else:
            raise click.UsageError(f"unknown field %{part} in the format")
    return _filled(template, parts)


def _filled(template: bytes, parts: Sequence[Render]) -> Render:
    """Return the function that fills a template of bytes with parts of a record."""
    if len(parts) == 1:
        # The value alone is what is printed most.
        only = parts[0]
        return lambda message: template % only(message)
    return lambda message: template % tuple([part(message) for part in parts])
