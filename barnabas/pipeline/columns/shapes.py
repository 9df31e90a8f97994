"""The columns of a schema: for each part its type in Arrow, and how values get there and back.

The functions are compiled once for a schema. `None` in their place means that decoder, Arrow and
encoder have the same value.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

Convert = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
DEEPEST: Final = 40
"""Levels of a schema at most: one that contains itself has no columns."""


class Shape(NamedTuple):
    """The columns of a part of a schema."""

    type: pa.DataType
    read: Convert | None = None
    """From a value of the decoder to one that Arrow takes."""
    write: Convert | None = None
    """From a value of Arrow to one of the encoder."""


class Column(NamedTuple):
    """A field of a record."""

    name: str
    shape: Shape
    required: bool
    """Whether it may not be left out."""
    null: bool = True
    """Whether a row may have null there."""


class RowShape(NamedTuple):
    """The columns of a schema, and how a whole value gets there and back."""

    columns: Sequence[Column]
    """Empty for a schema of a single value, which keys may have."""
    type: pa.DataType
    read: Convert | None
    write: Convert | None
    """From a mapping; columns that it lacks get what the schema says."""


def struct_type(columns: Sequence[Column]) -> pa.StructType:
    """Return the type of a record with columns."""
    return pa.struct([pa.field(each.name, each.shape.type) for each in columns])


def struct_of(columns: Sequence[Column]) -> Shape:
    """Return the shape of a record, which is a mapping for decoder and encoder."""
    return Shape(
        struct_type(columns),
        _converted([(each.name, each.shape.read) for each in columns]),
        _converted([(each.name, each.shape.write) for each in columns]),
    )


def list_of(element: Shape) -> Shape:
    """Return the shape of a list."""
    return Shape(pa.list_(element.type), _each(element.read), _each(element.write))


def map_of(value: Shape, key: Shape = Shape(pa.string())) -> Shape:  # noqa: B008
    """Return the shape of a map; Arrow has it as a list of pairs."""

    def read(items: Mapping[Any, Any] | None) -> Any:
        if items is None:
            return None
        return [
            (_with(key.read, name), None if each is None else _with(value.read, each))
            for name, each in items.items()
        ]

    def write(items: Sequence[tuple[Any, Any]] | None) -> Any:
        if items is None:
            return None
        return {
            _with(key.write, name): None if each is None else _with(value.write, each)
            for name, each in items
        }

    return Shape(pa.map_(key.type, value.type), read, write)


def _converted(converts: Sequence[tuple[str, Convert | None]]) -> Convert | None:
    """Return the function that changes some fields of a mapping; None if it changes none."""
    changes = [(name, convert) for name, convert in converts if convert is not None]
    if not changes:
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        changed = dict(value)
        for name, each in changes:
            if changed.get(name) is not None:
                changed[name] = each(changed[name])
        return changed

    return convert


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: (
        None if items is None else [None if each is None else convert(each) for each in items]
    )


def _with(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)
