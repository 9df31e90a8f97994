"""Values with a schema id as columns of Spark, and columns as such values.

The functions run in Spark's workers, which are used for one batch after the other: what the
registry has told is remembered there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from barnabas.pipeline.columns.registered import REASON, VALUE, decode, encode, record_of
from barnabas.pipeline.columns.shapes import RowShape, struct_type
from barnabas.pipeline.jobs.registered import Format, SinkFormat, told_at
from barnabas.pipeline.jobs.spec import Location, Problem, nearest
from barnabas.registry.client import SchemaRegistry
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


def decoded(form: Format, value: Column, location: Location) -> Column:
    """Return a struct of `value`, the columns, and `reason`, why there are none; raises Problem."""
    with told_at(location):
        record = record_of(form.usable())
    for each in record.columns:
        if each.name.startswith("_"):
            text = f"field {each.name!r}: columns that begin with _ are for the record"
            raise Problem((*location, "codec"), text)

    def decode_values(values: pa.Array) -> pa.Array:
        return decode(*_decoder(form), values)

    columns = from_arrow_type(struct_type(record.columns))
    kind = StructType([StructField(VALUE, columns), StructField(REASON, StringType())])
    return _function(decode_values, kind)(value)


def encoded(
    form: SinkFormat,
    view: DataFrame,
    names: Sequence[str],
    keep: Column | None = None,
    *,
    registers: bool,
) -> Column:
    """Return the value of each row; raises Problem for columns that the schema does not have.

    Spark encodes rows before it leaves some out: those that are not to be kept have no value.
    With `registers` the schema is registered, when all else is right, else only checked.
    """
    location = (*form.location, "codec")
    with told_at(form.location):
        record = record_of(form.format.usable())
    row = f.struct(*_fitted(record, view, names, location))
    if keep is not None:
        row = f.when(keep, row)
    made, number = form.format, form.register() if registers else form.check()

    def encode_rows(rows: pa.Array) -> pa.Array:
        return encode(*_encoder(made, number), rows)

    return _function(encode_rows, BinaryType())(row)


def _function(work: Callable[[pa.Array], pa.Array], kind: DataType) -> Callable[[Column], Column]:
    """Return a function of columns that Spark calls once for a value.

    Of one that it holds for deterministic it makes as many as the result is used.
    """
    make: Any = arrow_udf
    once: Callable[[Column], Column] = make(work, kind).asNondeterministic()
    return once


def _fitted(
    record: RowShape, view: DataFrame, names: Sequence[str], location: Location
) -> Sequence[Column]:
    """Return the columns of a view as the schema has them: name for name, and of its types."""
    fields = {each.name.lower(): each for each in record.columns}
    found = {name.lower(): name for name in names}
    for name in names:
        if name.lower() not in fields:
            known = [each.name for each in record.columns]
            text = f"the schema has no field {name!r}; {nearest(name, known)}"
            raise Problem(location, text)
    columns = []
    for lower, each in fields.items():
        if lower not in found:
            if each.required:
                raise Problem(location, f"the schema needs a column {each.name!r}")
            continue
        wanted = from_arrow_type(each.shape.type)
        given = view.schema[found[lower]].dataType
        column = f.col(found[lower])
        if _text(given) != _text(wanted):
            if _text(given) not in _WIDENED.get(_text(wanted), ()):
                text = f"column {each.name!r} is {_text(given)}, and in the schema {_text(wanted)}"
                raise Problem(location, f"{text}: cast it")
            column = column.cast(wanted)
        columns.append(column.alias(each.name))
    return columns


def _text(kind: DataType) -> str:
    return kind.simpleString()


@lru_cache(_REMEMBERED)
def _registry(settings: RegistrySettings) -> SchemaRegistry:
    return SchemaRegistry(settings)


@lru_cache(_REMEMBERED)
def _decoder(form: Format) -> tuple[Decoder, RowShape]:
    reader = form.usable()
    decoder = Decoder(_registry(form.settings), form.codec, form.subject, reader)
    return decoder, record_of(reader)


@lru_cache(_REMEMBERED)
def _encoder(form: Format, number: int) -> tuple[Encoder, RowShape]:
    schema = form.usable()
    return Encoder(schema, form.subject, number), record_of(schema)
