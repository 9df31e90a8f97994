"""kcat's format strings: how a record becomes a line."""

from collections.abc import Callable

import click

from barnabas.client.consumer import Message

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

Piece = Callable[[Message], bytes]


def _headers(message: Message) -> bytes:
    return ",".join(
        f"{name}={'NULL' if value is None else value.decode(errors='backslashreplace')}"
        for name, value in message.headers
    ).encode()


_FIELDS: dict[str, Piece] = {
    "s": lambda m: m.value or b"",
    "S": lambda m: str(-1 if m.value is None else len(m.value)).encode(),
    "k": lambda m: m.key or b"",
    "K": lambda m: str(-1 if m.key is None else len(m.key)).encode(),
    "t": lambda m: m.topic.encode(),
    "p": lambda m: str(m.partition).encode(),
    "o": lambda m: str(m.offset).encode(),
    "T": lambda m: str(m.timestamp).encode(),
    "h": _headers,
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Piece:
    r"""A format such as `%t [%p] at %o: key %k, value %s\n` as a function from record to bytes.

    Fields: %s value, %S its length, %k key, %K its length, %t topic, %p partition, %o offset,
    %T timestamp in ms, %h headers. Raises a usage error at an unknown one.
    """
    pieces: list[Piece] = []
    literal = bytearray()

    def flush() -> None:
        if literal:
            data = bytes(literal)
            pieces.append(lambda _: data)
            literal.clear()

    characters = iter(text)
    for character in characters:
        if character == "%":
            name = next(characters, "")
            if name not in _FIELDS:
                raise click.UsageError(f"unknown field %{name} in the format")
            flush()
            pieces.append(_FIELDS[name])
        elif character == "\\":
            escaped = next(characters, "\\")
            literal += _ESCAPES.get(escaped, "\\" + escaped).encode()
        else:
            literal += character.encode()
    flush()
    return lambda message: b"".join(piece(message) for piece in pieces)
