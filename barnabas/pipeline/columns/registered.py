"""Values with a schema id as columns, and columns as such values."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.pipeline.columns.shapes import RowShape, struct_type
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.usable import UsableSchema

VALUE: Final = "value"
REASON: Final = "reason"

_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""The errors of a conversion; those of Arrow are among them."""


def record_of(schema: UsableSchema) -> RowShape:
    """Return the columns of a schema; raises BadSchema for one that has none."""
    # Imported here: each needs packages of the extra `formats`.
    record: Callable[[Any], RowShape]
    match schema.schema.kind:
        case "AVRO":
            from barnabas.pipeline.columns.avro import record
        case "PROTOBUF":
            from barnabas.pipeline.columns.protobuf import record
        case _:
            from barnabas.pipeline.columns.json_schema import record
    found = record(schema)
    if not found.columns:
        raise BadSchema("the schema has no field")
    # Spark does not tell the case of names apart.
    lower = [each.name.lower() for each in found.columns]
    for name in lower:
        if lower.count(name) > 1:
            raise BadSchema(f"two fields are named {name!r}, in capital and small letters")
    return found


def decode(decoder: Decoder, record: RowShape, values: pa.Array) -> pa.StructArray:
    """Return the columns of each value in `value`, or why there are none in `reason`.

    Raises RegistryError if the registry cannot be asked.
    """
    rows: list[Any] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        row, reason = None, None
        try:
            if value is None:
                raise BadRecord("value is null")
            _, row = decoder.decode(value)
            row = row if record.read is None else record.read(row)
        except BadRecord as error:
            reason = str(error)
        except _ERRORS as error:
            row, reason = None, _misfit(decoder, value, error)
        rows.append(row)
        reasons.append(reason)
    kind = struct_type(record.columns)
    try:
        columns = pa.array(rows, kind)
    except _ERRORS:
        # One by one, to find those that do not fit.
        parts = []
        for index, row in enumerate(rows):
            try:
                parts.append(pa.array([row], kind))
            except _ERRORS as error:
                parts.append(pa.array([None], kind))
                reasons[index] = _misfit(decoder, values[index].as_py(), error)
        columns = pa.concat_arrays(parts)
    found: pa.StructArray = pa.StructArray.from_arrays(
        [columns, pa.array(reasons, pa.string())], [VALUE, REASON]
    )
    return found


def _misfit(decoder: Decoder, value: bytes, error: Exception) -> str:
    text = " ".join(f"{error}".split())[:200]
    return str(decoder.failure(value, f"value does not fit the columns: {text}"))


def encode(encoder: Encoder, record: RowShape, rows: pa.StructArray) -> pa.Array:
    """Return the value of each row, null for null; raises BadRecord for the first misfit."""
    required = [each.name for each in record.columns if each.required]
    return pa.array(
        [
            None if row is None else _encoded(encoder, record, required, row)
            for row in rows.to_pylist()
        ],
        pa.binary(),
    )


def _encoded(encoder: Encoder, record: RowShape, required: Sequence[str], row: Any) -> bytes:
    for name in required:
        if row.get(name) is None:
            raise encoder.failure(f"column {name} is null")
    try:
        value = row if record.write is None else record.write(row)
    except _ERRORS as error:
        raise encoder.failure(f"row does not fit the schema: {error}") from error
    return encoder.encode(value)
