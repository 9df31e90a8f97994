"""Every declared message with every version, and Hypothesis strategies for their values."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import APIS, Field, Schema, Type, api, fields_of

INTERNAL = ("consumer_protocol", "end_txn_marker", "group_metadata", "offset_commit",
            "producer_snapshot", "transaction_log")  # fmt: skip

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def schemas() -> Iterator[Schema]:
    """Requests and responses of every API, and the records of internal topics."""
    for key in APIS:
        yield api(key).request._schema
        yield api(key).response._schema
    for name in INTERNAL:
        module = import_module(f"barnabas.protocol.internal.{name}")
        yield from (value for value in vars(module).values() if isinstance(value, Schema))


def versions() -> list[Any]:
    """(class, version) of everything that has a codec, with readable test ids."""
    import pytest

    return [
        pytest.param(schema.cls, version, id=f"{schema.cls.__name__}-v{version}")
        for schema in schemas()
        for version in schema.versions
    ]


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Messages whose every field can travel in `version`; absent fields keep their defaults."""
    return st.builds(
        cls,
        **{
            field.name: _values(field, version) for field in fields_of(cls) if field.exists(version)
        },
    )


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if field.name.endswith("_ms") or "timestamp" in field.name:
        # What foreign implementations can turn into a point or a span of time.
        return st.integers(0, 2**31 - 1 if field.type.kind == "int32" else 4 * 10**12)
    nullable = field.nullable(version) and field.spec.tag is None
    return _of(field.type, nullable or field.default() is None, version)


def _of(kind: Type, nullable: bool, version: int) -> st.SearchStrategy[Any]:
    return st.none() | _present(kind, version) if nullable else _present(kind, version)


def _flat(kind: Type, version: int) -> bool:
    """Whether this is a struct without strings, arrays and other structs."""
    if kind.struct is None:
        return False
    inline = [f.type for f in fields_of(kind.struct) if f.exists(version) and f.spec.tag is None]
    return all(inner.kind in _INTEGERS for inner in inline)


def _present(kind: Type, version: int) -> st.SearchStrategy[Any]:
    if kind.kind in _INTEGERS:
        low, high = _INTEGERS[kind.kind]
        return st.integers(0, 100) | st.integers(low, high)
    if kind.kind == "bool":
        return st.booleans()
    if kind.kind == "float64":
        return st.floats(allow_nan=False)
    if kind.kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    if kind.kind == "string":
        return st.text(max_size=8) | st.just("x" * 127) | st.just("é" * 90)
    if kind.kind == "array":
        assert kind.item is not None
        item = _of(kind.item, kind.item.nullable, version)
        if kind.item.kind in _INTEGERS:
            return st.lists(item, max_size=3) | st.just([7] * 40)
        few = st.lists(item, max_size=3)
        # Beyond a few, structs of one size take a way of their own.
        return few | item.map(lambda one: [one] * 7) if _flat(kind.item, version) else few
    if kind.struct is not None:
        return messages(kind.struct, version)
    return st.binary(max_size=20) | st.just(b"r" * 200)
