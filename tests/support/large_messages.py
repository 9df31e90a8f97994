"""Messages of any API with one large array: the smallest values otherwise, equal or distinct."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.schema import Field, WireType, fields_of

Path = tuple[Field, ...]
"""The fields from a message to one of its arrays, through structs and other arrays."""

_NAMED = {"timeout_ms": 30_000, "resource_type": int(ConfigResourceType.TOPIC)}
"""Values by field name: with the smallest ones the broker would refuse the whole request."""
_LEAST = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "array": []}


def arrays(cls: type[Any], version: int) -> Iterator[Path]:
    """Yield the path to each array of a message in a version."""
    for field in fields_of(cls):
        if not field.exists(version):
            continue
        kind = field.type.item or field.type
        if field.type.item is not None:
            yield (field,)
        if kind.struct is not None:
            yield from ((field, *rest) for rest in arrays(kind.struct, version))


def around(path: Path) -> int:
    """Return the elements of a message beside those of its large array: items, tagged fields."""
    items = sum(field.type.item is not None for field in path[:-1])
    return items + sum(field.spec.tag is not None for field in path)


def large_message(
    cls: type[Any],
    version: int,
    path: Path = (),
    elements: int = 0,
    *,
    distinct: bool = False,
    first_number: int = 1,
) -> Any:
    """Return a message with so many elements in the array at `path`; distinct ones are numbered."""
    values = {
        field.name: _NAMED.get(field.name, _least(field.type, version))
        for field in fields_of(cls)
        if not (path and field.name == path[0].name) and _needs_value(field, version)
    }
    if path:
        first, *rest = path
        kind = first.type.item or first.type
        if rest:
            assert kind.struct is not None
            inner = large_message(
                kind.struct,
                version,
                tuple(rest),
                elements,
                distinct=distinct,
                first_number=first_number,
            )
            values[first.name] = inner if first.type.item is None else [inner]
        elif distinct:
            numbers = count(first_number)
            values[first.name] = [_numbered(kind, version, next(numbers)) for _ in range(elements)]
        else:
            values[first.name] = [_least(kind, version)] * elements
    return cls(**values)


def _needs_value(field: Field, version: int) -> bool:
    spec = field.spec
    if spec.tag is not None or spec.default_factory is not None:
        return False
    plain = isinstance(spec.default, int | float | str | bytes | None)
    return field.exists(version) or not plain


def _least(kind: WireType, version: int) -> Any:
    return large_message(kind.struct, version) if kind.struct else _LEAST.get(kind.kind, 0)


def _numbered(kind: WireType, version: int, number: int) -> Any:
    """Return an element whose names and numbers no other element has."""
    if kind.kind == "string":
        return f"n{number}"
    if kind.kind in ("int32", "int64"):
        return number
    element = _least(kind, version)
    for field in fields_of(kind.struct) if kind.struct else ():
        if field.exists(version) and field.type.kind in ("string", "int32"):
            setattr(element, field.name, _numbered(field.type, version, number))
    return element
