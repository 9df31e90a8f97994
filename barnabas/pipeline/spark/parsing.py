"""The parsing of records: columns of their keys and values, and why a record cannot be parsed.

The functions work on streams and on tables alike. Their errors are Problems with the location in
the job file.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructType

from barnabas.pipeline.columns.registered import KIND as KIND_FIELD
from barnabas.pipeline.columns.registered import REASON as REASON_FIELD
from barnabas.pipeline.columns.registered import VALUE as VALUE_FIELD
from barnabas.pipeline.errors import BadKind
from barnabas.pipeline.jobs.registered import source_format
from barnabas.pipeline.jobs.spec import Coded, Job, Location, Parse, Problem, Source, nearest
from barnabas.pipeline.monitor.events import FIRST
from barnabas.pipeline.spark import registered
from barnabas.registry.errors import Unreadable
from barnabas.registry.wire import SCHEMA_HEADERS, Part

LINEAGE: Final = "_lineage"
BAD: Final = "_bad"
"""The column that says why a record is bad; null for a good one."""
_BAD_TYPE: Final = "struct<name: string, reason: string, schema: string>"
_PLACE: Final = {"topic": "string", "partition": "int", "offset": "bigint"}
_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt"
_NOT_NULL: Final = re.compile(r"\s+not\s+null$", re.IGNORECASE)


class Check(NamedTuple):
    """A condition under which a part of a record is bad."""

    failed: Column
    part: Part
    kind: BadKind
    reason: Column | str
    schema: Column | None = None
    """The subject and the id of the schema, if it is one of a registry."""

    @property
    def name(self) -> str:
        """The part and the kind, such as `value.not_json`."""
        return f"{self.part}.{self.kind}"

    @property
    def bad(self) -> Column:
        """The content of BAD, if the condition holds."""
        reason = f.lit(self.reason) if isinstance(self.reason, str) else self.reason
        schema = f.lit(None).cast("string") if self.schema is None else self.schema
        return f.struct(
            f.lit(self.name).alias("name"), reason.alias("reason"), schema.alias("schema")
        )


class Marked(NamedTuple):
    """Records with the columns of their parts, and with BAD."""

    rows: DataFrame
    names: Sequence[str]
    """The names that BAD may have."""


def parse(job: Job, location: Location, source: Source, records: DataFrame) -> Marked:
    """Return the columns of the values and of the records, and BAD where parsing failed.

    The columns of the source that views see begin with an underscore; `_raw_value` and `_raw_key`
    are those of the record, unchanged.
    """
    key, checks = _key(job, location, source, records)
    value, more = _value_of(job, location, source, records)
    rows = records.select(
        *(f.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
        *([f.col("headers").alias("_headers")] if _shows_headers(job, source, records) else []),
        *([_place("").alias(LINEAGE)] if job.lineage else []),
        key.alias("_key"),
        f.col("key").alias("_raw_key"),
        f.col("value").alias("_raw_value"),
        value,
    )
    marked = _marked(rows, [*checks, *more])
    if source.key.is_registered:
        marked = marked._replace(rows=marked.rows.withColumn("_key", f.col("_key")[VALUE_FIELD]))
    if source.is_registered:
        parsed = f.col(_PARSED)[VALUE_FIELD]
        marked = marked._replace(rows=marked.rows.withColumn(_PARSED, parsed))
    return marked


def _key(
    job: Job, location: Location, source: Source, records: DataFrame
) -> tuple[Column, list[Check]]:
    """Return the key of a record, and when it is bad; a decoded one has its reason."""
    if source.key.is_registered:
        return _decoded(job, (*location, "key"), source, "key", records)
    if source.key.codec == "binary":
        return f.col("key"), []
    text = "key is not UTF-8; set source.key to binary"
    return f.col("key").cast("string"), [Check(_is_no_text("_raw_key"), "key", "not_utf8", text)]


def _value_of(
    job: Job, location: Location, source: Source, records: DataFrame
) -> tuple[Column, list[Check]]:
    """Return the value of a record, and when it is bad."""
    if source.is_registered:
        value, checks = _decoded(job, location, source, "value", records)
        is_null = Check(f.col("_raw_value").isNull(), "value", "null", "value is null")
        return value.alias(_PARSED), [is_null, *checks]
    if source.codec == "binary":
        return f.col("value"), []
    text = f.col("value").cast("string")
    check = Check(_is_no_text("_raw_value"), "value", "not_utf8", "value is not UTF-8")
    if source.codec == "string":
        return text.alias("value"), [check]
    parsed = _from_json(text, schema_of(location, source.columns), source.json_options)
    return parsed.alias(_PARSED), [check, *_json_checks("value", source.columns)]


def _is_no_text(column: str) -> Column:
    return ~f.coalesce(f.is_valid_utf8(column), f.lit(True))


def _decoded(
    job: Job, location: Location, source: Source, part: Part, records: DataFrame
) -> tuple[Column, list[Check]]:
    """Return what the registry's schema makes of a part of the record, and when it is bad."""
    coded: Coded = source.key if part == "key" else source
    form = source_format(job.registry_settings, coded, source.topics or (), location, part)
    header = f.lit(None).cast("binary")
    if "headers" in records.columns:
        name = SCHEMA_HEADERS[part]
        own = f.filter("headers", lambda each: each["key"] == name)
        # The last one counts, as for Confluent's deserializers in Java.
        header = f.try_element_at(own, f.lit(-1))["value"]
    found = f.col("_key" if part == "key" else _PARSED)
    # A reason is `subject S, schema id N: ...`, and may repeat what the record has.
    schema = f.substring_index(found[REASON_FIELD], ": ", 1)
    checks = [
        Check(found[KIND_FIELD] == kind, part, kind, found[REASON_FIELD], schema)
        for kind in get_args(Unreadable)
    ]
    return registered.decoded(form, f.col(part), header, location), checks


def _shows_headers(job: Job, source: Source, records: DataFrame) -> bool:
    """Return whether views have the headers, which may have been read for their schemas only."""
    asked = {name.lower(): value.lower() for name, value in source.options.items()}
    is_wanted = job.bad_topic is not None or asked.get("includeheaders") == "true"
    return "headers" in records.columns and (is_wanted or not source.has_schemas)


def parse_column(location: Location, step: Parse, view: DataFrame) -> Marked:
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
    rows = view.select(
        *map(column_named, kept),
        key.cast("binary").alias("_raw_key"),
        column_named(column).cast("binary").alias("_raw_value"),
        _from_json(column_named(column), schema, step.json_options).alias(_PARSED),
    )
    return _marked(rows, _json_checks(column, step.columns))


def _has_place(rows: DataFrame) -> bool:
    """Return whether rows have the columns of the place of their record."""
    return all(f"_{each}" in rows.columns for each in _PLACE)


def _place(prefix: str) -> Column:
    """Return the place of a record, such as orders/0@17; `prefix` is that of the columns."""
    topic, partition, offset = (f.col(prefix + name) for name in _PLACE)
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


def _json_checks(what: str, columns: Mapping[str, str]) -> list[Check]:
    """Return when JSON is bad; it may be of any type that JSON has, and still not be a row."""
    is_corrupt = f.col(_PARSED)[_CORRUPT].isNotNull() | f.col(_PARSED).isNull()
    is_json = f.try_parse_json(f.col("_raw_value").cast("string")).isNotNull()
    return [
        Check(f.col("_raw_value").isNull(), "value", "null", f"{what} is null"),
        Check(is_corrupt & ~is_json, "value", "not_json", f"{what} is not JSON"),
        Check(is_corrupt, "value", "misfit", f"{what} does not fit the schema"),
        *(
            Check(f.col(_PARSED)[name].isNull(), "value", "misfit", f"column {name} is null")
            for name, text in columns.items()
            if _NOT_NULL.search(text.strip())
        ),
    ]


def _marked(rows: DataFrame, checks: Sequence[Check]) -> Marked:
    """Add BAD: the first check that fails, null for a good record."""
    bad = f.lit(None).cast(_BAD_TYPE)
    for check in reversed(checks):
        bad = f.when(check.failed, check.bad).otherwise(bad)
    return Marked(rows.withColumn(BAD, bad), list(dict.fromkeys(each.name for each in checks)))


def bad_counts(marked: Marked) -> list[Column]:
    """Return the number of bad records of each name, and the place of the first: aggregates.

    A column with a place is named `first.` before; it is left out if rows have no place.
    """
    counts = []
    for name in marked.names:
        is_it = f.col(BAD)["name"] == name
        counts.append(f.count_if(is_it).alias(name))
        if _has_place(marked.rows):
            place = (f.col(f"_{each}").cast(kind).alias(each) for each, kind in _PLACE.items())
            first = f.struct(*place, f.col(BAD)["schema"].alias("schema"))
            counts.append(f.min(f.when(is_it, first)).alias(f"{FIRST}{name}"))
    return counts


def with_values(marked: DataFrame) -> DataFrame:
    """Return the columns of parsed values, then the other columns of `parse`."""
    if _PARSED not in marked.columns:
        return marked
    names = marked.select(f"{_PARSED}.*").drop(_CORRUPT).columns
    values = [f.col(_PARSED)[name].alias(name) for name in names]
    others = (column_named(name) for name in marked.columns if name != _PARSED)
    return marked.select(*values, *others)


def good_records(marked: DataFrame, advice: str | None) -> DataFrame:
    """Return the view of what was parsed: the columns of the values, then those of the record.

    Other records are left out; with `advice` they fail the query, whose error ends with it.
    """
    good = f.col(BAD).isNull()
    if advice is not None:
        at = f.concat(f.lit(" at "), _place("_")) if _has_place(marked) else f.lit("")
        reason = f.col(BAD)["reason"]
        failure = f.concat(f.lit("bad record"), at, f.lit(": "), reason, f.lit(advice))
        good = f.when(good, f.lit(True)).otherwise(f.raise_error(failure).cast("boolean"))
    return marked.where(good).drop(BAD, "_raw_key", "_raw_value")


def column_named(name: str) -> Column:
    """Return a column by its whole name, in which Spark takes a dot for that of a field."""
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def column_of(view: DataFrame, name: str, location: Location) -> str:
    """Return the column of `view` with `name`, in any case, as the view spells it."""
    found = {column.lower(): column for column in view.columns}.get(name.lower())
    if found is None:
        raise Problem(location, f"no column {name!r}; {nearest(name, view.columns)}")
    return found
