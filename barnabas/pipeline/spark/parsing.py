"""The parsing of records: columns of their keys and values, and why a record cannot be parsed.

The functions work on streams and on tables alike. Their errors are Problems with the location in
the job file.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructType

from barnabas.pipeline.columns.registered import REASON as REASON_FIELD
from barnabas.pipeline.columns.registered import VALUE as VALUE_FIELD
from barnabas.pipeline.jobs.registered import source_format
from barnabas.pipeline.jobs.spec import Coded, Job, Location, Parse, Problem, Source, nearest
from barnabas.pipeline.spark import registered
from barnabas.registry.wire import SCHEMA_HEADERS, Part

LINEAGE: Final = "_lineage"
REASON: Final = "_reason"
_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt"
_NOT_NULL: Final = re.compile(r"\s+not\s+null$", re.IGNORECASE)



def parse(job: Job, location: Location, source: Source, records: DataFrame) -> DataFrame:
    """Return the columns of the values and of the records, and `_reason` where parsing failed.

    The columns of the source that views see begin with an underscore; `_raw_value` and `_raw_key`
    are those of the record, unchanged.
    """
    key, key_reasons = _key(job, location, source, records)
    value, reasons = _value_of(job, location, source, records)
    marked = records.select(
        *(f.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
        *([f.col("headers").alias("_headers")] if _shows_headers(job, source, records) else []),
        *([_place("").alias(LINEAGE)] if job.lineage else []),
        key.alias("_key"),
        f.col("key").alias("_raw_key"),
        f.col("value").alias("_raw_value"),
        value,
    )
    none = f.lit(None).cast("string")
    marked = marked.withColumn(REASON, f.coalesce(*key_reasons, *reasons, none))
    if source.key.is_registered:
        marked = marked.withColumn("_key", f.col("_key")[VALUE_FIELD])
    if source.is_registered:
        marked = marked.withColumn(_PARSED, f.col(_PARSED)[VALUE_FIELD])
    return marked


def _key(
    job: Job, location: Location, source: Source, records: DataFrame
) -> tuple[Column, list[Column]]:
    """Return the key of a record, and its reasons to be bad; a decoded one has its reason."""
    if source.key.is_registered:
        return _decoded(job, (*location, "key"), source, "key", records)
    if source.key.codec == "binary":
        return f.col("key"), []
    is_text = f.coalesce(f.is_valid_utf8("_raw_key"), f.lit(True))
    text = "key is not UTF-8; set source.key to binary"
    return f.col("key").cast("string"), [_reason([(~is_text, text)])]


def _value_of(
    job: Job, location: Location, source: Source, records: DataFrame
) -> tuple[Column, list[Column]]:
    """Return the value of a record, and its reasons to be bad."""
    if source.is_registered:
        value, reasons = _decoded(job, location, source, "value", records)
        is_null = f.col("_raw_value").isNull()
        return value.alias(_PARSED), [_reason([(is_null, "value is null")]), *reasons]
    if source.codec == "binary":
        return f.col("value"), []
    text = f.col("value").cast("string")
    is_text = f.coalesce(f.is_valid_utf8("_raw_value"), f.lit(True))
    checks = [(~is_text, "value is not UTF-8")]
    if source.codec == "string":
        return text.alias("value"), [_reason(checks)]
    parsed = _from_json(text, schema_of(location, source.columns), source.json_options)
    checks += _json_checks("value", source.columns)
    return parsed.alias(_PARSED), [_reason(checks)]


def _decoded(
    job: Job, location: Location, source: Source, part: Part, records: DataFrame
) -> tuple[Column, list[Column]]:
    """Return what the registry's schema makes of a part of the record, and why it is bad."""
    is_key = part == "key"
    coded: Coded = source.key if is_key else source
    form = source_format(job.registry_settings, coded, source.topics or (), location, part)
    header = f.lit(None).cast("binary")
    if "headers" in records.columns:
        name = SCHEMA_HEADERS[part]
        header = f.get(f.filter("headers", lambda each: each["key"] == name), f.lit(0))["value"]
    found = registered.decoded(form, f.col(part), header, location, is_key=is_key)
    return found, [f.col("_key" if is_key else _PARSED)[REASON_FIELD]]


def _shows_headers(job: Job, source: Source, records: DataFrame) -> bool:
    """Return whether views have the headers, which may have been read for their schemas only."""
    asked = {name.lower(): value.lower() for name, value in source.options.items()}
    is_wanted = job.bad_topic is not None or asked.get("includeheaders") == "true"
    return "headers" in records.columns and (is_wanted or not source.has_schemas)


def parse_column(location: Location, step: Parse, view: DataFrame) -> DataFrame:
    """Return a view with the columns of the JSON in one of its columns, which is left out."""
    column = column_of(view, step.column, (*location, "column"))
    if not isinstance(view.schema[column].dataType, StringType):
        kind = view.schema[column].dataType.simpleString()
        raise Problem((*location, "column"), f"column {column!r} is {kind}; it must be string")
    kept = [name for name in view.columns if name != column]
    for name in step.columns:
        if name.lower() in map(str.lower, kept):
            text = f"column {name!r} is there already; rename one of both"
            raise Problem((*location, "schema", name), text)
    schema = schema_of(location, step.columns)
    key = f.col("_key") if "_key" in kept else f.lit(None)
    return view.select(
        *kept,
        key.cast("binary").alias("_raw_key"),
        f.col(column).cast("binary").alias("_raw_value"),
        _from_json(f.col(column), schema, step.json_options).alias(_PARSED),
    ).withColumn(REASON, _reason(_json_checks(column, step.columns)))


def _place(prefix: str) -> Column:
    """Return the place of a record, such as orders/0@17; `prefix` is that of the columns."""
    topic, partition, offset = (f.col(prefix + name) for name in ("topic", "partition", "offset"))
    at = f.lit("@")
    return f.concat(topic, f.lit("/"), partition.cast("string"), at, offset.cast("string"))


def schema_of(location: Location, columns: Mapping[str, str]) -> StructType:
    """Return the columns of the key `schema` at a location; raises Problem."""
    schema = StructType()
    for name, text in columns.items():
        try:
            kind = DataType.fromDDL(_NOT_NULL.sub("", text.strip()))
        except PySparkException:
            why = f"{text!r} is not a type of Spark SQL"
            raise Problem((*location, "schema", name), why) from None
        schema.add(name, kind)
    return schema


def _from_json(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    own = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(text, schema.add(_CORRUPT, StringType()), {**options, **own})


def _json_checks(what: str, columns: Mapping[str, str]) -> list[tuple[Column, str]]:
    """Return the conditions under which JSON is bad, each with its reason."""
    corrupt = f.col(_PARSED)[_CORRUPT].isNotNull() | f.col(_PARSED).isNull()
    return [
        (f.col("_raw_value").isNull(), f"{what} is null"),
        (corrupt, f"{what} is not JSON of the schema"),
        *(
            (f.col(_PARSED)[name].isNull(), f"column {name} is null")
            for name, text in columns.items()
            if _NOT_NULL.search(text.strip())
        ),
    ]


def _reason(checks: Sequence[tuple[Column, str]]) -> Column:
    """Return why a record cannot be parsed; null if it can."""
    reason = f.lit(None).cast("string")
    for failed, text in reversed(checks):
        reason = f.when(failed, f.lit(text)).otherwise(reason)
    return reason


def with_values(marked: DataFrame) -> DataFrame:
    """Return the columns of parsed values, then the other columns of `parse`."""
    if _PARSED not in marked.columns:
        return marked
    names = marked.select(f"{_PARSED}.*").drop(_CORRUPT).columns
    values = [f.col(_PARSED)[name].alias(name) for name in names]
    return marked.select(*values, *(name for name in marked.columns if name != _PARSED))


def good_records(marked: DataFrame, advice: str | None) -> DataFrame:
    """Return the view of what was parsed: the columns of the values, then those of the record.

    Other records are left out; with `advice` they fail the query, whose error ends with it.
    """
    good = f.col(REASON).isNull()
    if advice is not None:
        has_place = "_offset" in marked.columns
        at = f.concat(f.lit(" at "), _place("_")) if has_place else f.lit("")
        failure = f.concat(f.lit("bad record"), at, f.lit(": "), f.col(REASON), f.lit(advice))
        good = f.when(good, f.lit(True)).otherwise(f.raise_error(failure).cast("boolean"))
    return marked.where(good).drop(REASON, "_raw_key", "_raw_value")


def column_of(view: DataFrame, name: str, location: Location) -> str:
    """Return the column of `view` with `name`, in any case, as the view spells it."""
    found = {column.lower(): column for column in view.columns}.get(name.lower())
    if found is None:
        raise Problem(location, f"no column {name!r}; {nearest(name, view.columns)}")
    return found
