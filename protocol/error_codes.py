"""Which errors an answer carries, wherever in it they stand."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from barnabas.protocol.schema import Message, fields_of

ErrorsOf = Callable[[Any], list[int]]


def errors_of(response: type[Any]) -> ErrorsOf:
    """A function that lists the error codes, other than 0, of answers of this class.

    Compiled to one comprehension for each place, because it looks at every answer that is sent.
    """
    places = [_comprehension(path) for path in _paths(response)]
    return cast(ErrorsOf, eval(f"lambda a0: {' + '.join(places) or '[]'}"))


def _paths(cls: type[Message]) -> Iterator[tuple[str, ...]]:
    """The arrays that lead to each `error_code`, from the outermost on."""
    for field in fields_of(cls):
        if field.name == "error_code":
            yield ()
        elif field.type.item is not None and field.type.item.struct is not None:
            yield from ((field.name, *rest) for rest in _paths(field.type.item.struct))


def _comprehension(path: tuple[str, ...]) -> str:
    loops = "".join(
        f" for a{depth + 1} in a{depth}.{name} or ()" for depth, name in enumerate(path)
    )
    last = f"a{len(path)}.error_code"
    return f"[{last}{loops or ' for _ in (0,)'} if {last}]"
