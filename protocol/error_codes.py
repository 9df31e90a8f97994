"""Which errors an answer carries, wherever in it they stand."""

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.protocol.schema import Message, fields_of

ErrorsOf = Callable[[Any], list[int]]

_NAMES = ("error_code", "partition_error_code")
"""AddPartitionsToTxn has a word of its own. Others name what is no failure, as CreateTopics does
for configurations that it may not show."""


def errors_of(response: type[Any]) -> ErrorsOf:
    """A function that lists the error codes, other than 0, of answers of this class.

    Compiled to plain loops, because it looks at every answer that is sent.
    """
    lines = ["def errors(a0):", " codes = []"]
    for path in _paths(response):
        lines += _loops(path)
    names: dict[str, ErrorsOf] = {}
    exec("\n".join([*lines, " return codes"]), names)
    return names["errors"]


def _paths(cls: type[Message]) -> Iterator[tuple[str, ...]]:
    """The arrays that lead to each error code, from the outermost on, and its name at the end."""
    for field in fields_of(cls):
        if field.name in _NAMES:
            yield (field.name,)
        elif field.type.item is not None and field.type.item.struct is not None:
            yield from ((field.name, *rest) for rest in _paths(field.type.item.struct))


def _loops(path: tuple[str, ...]) -> Iterator[str]:
    *arrays, name = path
    for depth, array in enumerate(arrays, 1):
        yield f"{' ' * depth}for a{depth} in a{depth - 1}.{array} or ():"
    code = f"a{len(arrays)}.{name}"
    yield f"{' ' * len(path)}if {code}: codes.append({code})"
