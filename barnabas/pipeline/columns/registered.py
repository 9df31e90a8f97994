"""Values with a schema id as columns, and columns as such values."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.pipeline.columns.shapes import RowShape
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.usable import UsableSchema

VALUE: Final = "value"
KIND: Final = "kind"
REASON: Final = "reason"

_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""The errors of a conversion; those of Arrow are among them."""


def record_of(schema: UsableSchema) -> RowShape:
    """Return the columns of a schema, none for a single value; raises BadSchema."""
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
    if not found.columns and pa.types.is_struct(found.type):
        raise BadSchema("the schema has no field")
    # Spark does not tell the case of names apart.
    lower = [each.name.lower() for each in found.columns]
    for name in lower:
        if lower.count(name) > 1:
            raise BadSchema(f"two fields are named {name!r}, in capital and small letters")
    return found


def text_of(codec: str, kind: pa.DataType, record: str) -> str:
    """Return the text of a schema for columns of a type; raises BadSchema."""
    match codec:
        case "avro":
            from barnabas.pipeline.columns.avro import text_of
        case "json-schema":
            from barnabas.pipeline.columns.json_schema import text_of
        case _:
            raise BadSchema("columns have no field numbers of Protobuf: give the schema")
    return text_of(kind, record)


def decode(
    decoder: Decoder, record: RowShape, values: pa.Array, headers: pa.Array | None = None
) -> pa.StructArray:
    """Return the columns of each value in `value`, or why there are none in `kind` and `reason`.

    `headers` are those of the schema, null where a value has it. A null has neither columns nor a
    reason. Raises RegistryError if the registry cannot be asked.
    """
    rows: list[Any] = []
    failures: list[BadRecord | None] = []
    of_schema = [None] * len(values) if headers is None else headers.to_pylist()
    pairs = list(zip(values.to_pylist(), of_schema, strict=True))
    for pair in pairs:
        row, failure = None, None
        try:
            if pair[0] is not None:
                _, row = decoder.decode(*pair)
                row = row if record.read is None else record.read(row)
        except BadRecord as error:
            failure = error
        except _ERRORS as error:
            row, failure = None, _misfit(decoder, pair, error)
        rows.append(row)
        failures.append(failure)
    kind = record.type
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
                failures[index] = _misfit(decoder, pairs[index], error)
        columns = pa.concat_arrays(parts)
    kinds = pa.array([each and each.kind for each in failures], pa.string())
    reasons = pa.array([each and str(each) for each in failures], pa.string())
    found: pa.StructArray = pa.StructArray.from_arrays(
        [columns, kinds, reasons], [VALUE, KIND, REASON]
    )
    return found


def _misfit(decoder: Decoder, pair: tuple[bytes, bytes | None], error: Exception) -> BadRecord:
    text = " ".join(f"{error}".split())[:200]
    return decoder.failure(*pair, f"value does not fit the columns: {text}", "misfit")


def encode(encoder: Encoder, record: RowShape, rows: pa.Array) -> pa.Array:
    """Return the value of each row, null for null; raises BadRecord for the first misfit."""
    not_null = [each.name for each in record.columns if not each.null]
    return pa.array([_encoded(encoder, record, not_null, row) for row in rows], pa.binary())


def _encoded(
    encoder: Encoder, record: RowShape, not_null: Sequence[str], scalar: pa.Scalar
) -> bytes | None:
    try:
        row = scalar.as_py()
        if row is None:
            return None
        for name in not_null:
            if name in row and row[name] is None:
                raise encoder.failure(f"column {name} is null")
        value = row if record.write is None else record.write(row)
    except _ERRORS as error:
        # Spark has times that Python has not, behind the year 9999.
        raise encoder.failure(f"row does not fit the schema: {error}") from error
    return encoder.encode(value)
