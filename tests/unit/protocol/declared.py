"""All declared messages with their versions, and Hypothesis strategies for their values."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from barnabas.protocol import messages as modules
from barnabas.protocol.compile import Form
from barnabas.protocol.compile_decode import decoder
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Api, Field, Schema, WireType, fields_of

INTERNAL = ("consumer_group", "consumer_protocol", "end_txn_marker", "group_metadata",
            "offset_commit", "producer_snapshot", "transaction_log")  # fmt: skip

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def declared_apis() -> list[tuple[str, Api]]:
    """Return every module of messages by name, with its API, also if no broker serves it yet."""
    names = [module.name for module in iter_modules(modules.__path__)]
    found = [(name, import_module(f"{modules.__name__}.{name}").API) for name in names]
    return sorted(found, key=lambda each: each[1].key)


def schemas() -> Iterator[Schema]:
    """Return requests and responses of every API, and the records of internal topics."""
    for _, api in declared_apis():
        yield api.request._schema
        yield api.response._schema
    for name in INTERNAL:
        module = import_module(f"barnabas.protocol.internal.{name}")
        yield from (value for value in vars(module).values() if isinstance(value, Schema))


def finish(steps: Iterator[None]) -> Any:
    """Run a sliced codec to its end; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def sliced_decode(cls: type[Any], version: int, data: bytes, most: int = 1 << 20) -> Any:
    """Decode with the sliced form, and as `decode` does."""
    return finish(decoder(cls, version, Form.SLICED)(data, 0, True, most))


def versions() -> list[Any]:
    """Return (class, version) of everything that has a codec, with readable test ids."""

    return [
        pytest.param(schema.cls, version, id=f"{schema.cls.__name__}-v{version}")
        for schema in schemas()
        for version in schema.versions
    ]


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy of messages with all fields of `version`; other fields keep their
    defaults."""
    return st.builds(
        cls,
        **{
            field.name: _values(field, version) for field in fields_of(cls) if field.exists(version)
        },
    )


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode if code <= LAST_ERROR_OF_KIO])
    if field.name.endswith("_ms") or "timestamp" in field.name:
        # The range that foreign implementations can convert to a point or a span of time.
        return st.integers(0, 2**31 - 1 if field.type.kind == "int32" else 4 * 10**12)
    nullable = field.nullable(version) and field.spec.tag is None
    return _of(field.type, nullable or field.default() is None, version)


def _of(kind: WireType, nullable: bool, version: int) -> st.SearchStrategy[Any]:
    return st.none() | _present(kind, version) if nullable else _present(kind, version)


def _flat(kind: WireType, version: int) -> bool:
    """Return whether this is a struct without strings, arrays and other structs."""
    if kind.struct is None:
        return False
    inline = [f.type for f in fields_of(kind.struct) if f.exists(version) and f.spec.tag is None]
    return all(inner.kind in _INTEGERS for inner in inline)


def _present(kind: WireType, version: int) -> st.SearchStrategy[Any]:
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
        # The decoder has a path of its own for more than a few structs of one size.
        return few | item.map(lambda one: [one] * 7) if _flat(kind.item, version) else few
    if kind.struct is not None:
        return messages(kind.struct, version)
    return st.binary(max_size=20) | st.just(b"r" * 200)


LAST_ERROR_OF_KIO = ErrorCode.SHARE_SESSION_LIMIT_REACHED
"""The last error of Kafka 4.3: kio does not have those of 4.4 yet."""

FEW = settings(
    max_examples=3,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
