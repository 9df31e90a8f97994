"""Values with a schema id as columns of Spark, and columns as such values.

The functions run in Spark's workers, which are used for one batch after the other: what the
registry has told is remembered there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from barnabas.pipeline.columns import registered as columns
from barnabas.pipeline.columns.registered import KIND, REASON, VALUE, decode, encode, record_of
from barnabas.pipeline.columns.shapes import RowShape
from barnabas.pipeline.jobs.registered import Format, SinkFormat, told_at
from barnabas.pipeline.jobs.spec import Location, Problem, nearest
from barnabas.registry.client import SchemaRegistry
from barnabas.registry.errors import BadSchema
from barnabas.registry.reading import Decoder, Encoder
from barnabas.registry.settings import RegistrySettings

_REMEMBERED: Final = 16
_WIDENED: Final[Mapping[str, Sequence[str]]] = {
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("float",),
    "decimal(20,0)": ("tinyint", "smallint", "int", "bigint"),
}
"""The types of columns that become another one without a loss."""


class Given(NamedTuple):
    """A column for the schema, and its type."""

    type: DataType
    column: Column


def text_of(codec: str, kind: DataType) -> Callable[[str], str]:
    """Return the function that makes a schema of columns, with a name; it raises BadSchema."""

    def text(name: str) -> str:
        try:
            arrow = to_arrow_type(kind, timezone="UTC")
        except PySparkException as error:
            raise BadSchema(f"{name}: {error.getMessage()}") from None
        return columns.text_of(codec, arrow, name)

    return text


def decoded(form: Format, data: Column, header: Column, location: Location) -> Column:
    """Return a struct of `value`, the columns, and why there are none; raises Problem.

    `data` is the value or key of a record, and `header` the one that may have its schema.
    """
    with told_at(location):
        record = record_of(form.usable())
        if not record.columns and form.part == "value":
            raise BadSchema("only a record has columns")
    for each in record.columns:
        if each.name.startswith("_"):
            text = f"field {each.name!r}: columns that begin with _ are for the record"
            raise Problem((*location, "codec"), text)

    def decode_values(values: pa.Array, headers: pa.Array) -> pa.Array:
        return decode(*_decoder(form), values, headers)

    value = StructField(VALUE, from_arrow_type(record.type))
    failure = [StructField(KIND, StringType()), StructField(REASON, StringType())]
    kind = StructType([value, *failure])
    return _function(decode_values, kind)(data, header)


def encoded(
    form: SinkFormat, given: Mapping[str, Given], keep: Column | None = None, *, registers: bool
) -> Column:
    """Return the value of each row; raises Problem for columns that the schema does not have.

    Spark encodes rows before it leaves some out: those that are not to be kept have no value.
    With `registers` the schema is registered, when all else is right, else only checked.
    """
    location = (*form.location, "codec")
    with told_at(form.location):
        record = record_of(form.format.usable())
        if not record.columns:
            raise BadSchema("only a record has columns")
    row = f.struct(*_fitted(record, given, location))
    return _encoded(form, row, keep, registers=registers)


def encoded_key(
    form: SinkFormat, name: str, given: Given, keep: Column | None, *, registers: bool
) -> Column:
    """Return the key of each row, null for null, likewise."""
    location = (*form.location, "codec")
    with told_at(form.location):
        record = record_of(form.format.usable())
    if record.columns and isinstance(given.type, StructType):
        fields = {each.name: Given(each.dataType, given.column[each.name]) for each in given.type}
        row = f.struct(*_fitted(record, fields, location))
    elif record.columns:
        text = f"column {name!r} is {_text(given.type)}; the schema of the key is of a struct"
        raise Problem(location, text)
    else:
        row = _cast(given, from_arrow_type(record.type), name, location)
    is_there = given.column.isNotNull()
    keep = is_there if keep is None else keep & is_there
    return _encoded(form, row, keep, registers=registers)


def _encoded(form: SinkFormat, row: Column, keep: Column | None, *, registers: bool) -> Column:
    if keep is not None:
        row = f.when(keep, row)
    made, number = form.format, form.register() if registers else form.check()

    def encode_rows(rows: pa.Array) -> pa.Array:
        return encode(*_encoder(made, number), rows)

    return _function(encode_rows, BinaryType())(row)


def _function(work: Callable[..., pa.Array], kind: DataType) -> Callable[..., Column]:
    """Return a function of columns that Spark calls once for a value.

    Of one that it holds for deterministic it makes as many as the result is used.
    """
    make: Any = arrow_udf
    once: Callable[..., Column] = make(work, kind).asNondeterministic()
    return once


def _fitted(record: RowShape, given: Mapping[str, Given], location: Location) -> Sequence[Column]:
    """Return columns as the schema has them: name for name, and of its types."""
    fields = {each.name.lower(): each for each in record.columns}
    found = {name.lower(): each for name, each in given.items()}
    for name in given:
        if name.lower() not in fields:
            known = [each.name for each in record.columns]
            text = f"the schema has no field {name!r}; {nearest(name, known)}"
            raise Problem(location, text)
    fitted = []
    for lower, each in fields.items():
        if lower in found:
            wanted = from_arrow_type(each.shape.type)
            fitted.append(_cast(found[lower], wanted, each.name, location).alias(each.name))
        elif each.required:
            raise Problem(location, f"the schema needs a column {each.name!r}")
    return fitted


def _cast(given: Given, wanted: DataType, name: str, location: Location) -> Column:
    """Return a column as the schema's type, if that loses nothing."""
    if _text(given.type) == _text(wanted):
        return given.column
    if _text(given.type) not in _WIDENED.get(_text(wanted), ()):
        text = f"column {name!r} is {_text(given.type)}, and in the schema {_text(wanted)}"
        raise Problem(location, f"{text}: cast it")
    return given.column.cast(wanted)


def _text(kind: DataType) -> str:
    return kind.simpleString()


@lru_cache(_REMEMBERED)
def _registry(settings: RegistrySettings) -> SchemaRegistry:
    return SchemaRegistry(settings)


@lru_cache(_REMEMBERED)
def _decoder(form: Format) -> tuple[Decoder, RowShape]:
    reader = form.usable()
    decoder = Decoder(_registry(form.settings), form.codec, form.subject, reader, form.part)
    return decoder, record_of(reader)


@lru_cache(_REMEMBERED)
def _encoder(form: Format, number: int) -> tuple[Encoder, RowShape]:
    schema = form.usable()
    return Encoder(schema, form.subject, number, form.part), record_of(schema)
