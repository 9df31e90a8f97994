"""The queries of a job: the views from source to sink, as DataFrames.

The functions work on streams and on tables alike, because they start from the DataFrame with the
source's records. Their errors are Problems with the location in the job file.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.pipeline.jobs.lineage import LINEAGE_HEADER
from barnabas.pipeline.jobs.reading import TextProblem
from barnabas.pipeline.jobs.registered import sink_format
from barnabas.pipeline.jobs.spec import (
    FileSink,
    Job,
    Location,
    Problem,
    Sink,
    Source,
    Step,
    Watermark,
    nearest,
)
from barnabas.pipeline.monitor.events import INPUT_METRICS, ROWS
from barnabas.pipeline.spark import registered
from barnabas.pipeline.spark.parsing import (
    BAD,
    LINEAGE,
    Marked,
    bad_counts,
    column_named,
    column_of,
    good_records,
    parse,
    parse_column,
    with_values,
)
from barnabas.registry.wire import SCHEMA_HEADERS

_LINE_AND_COLUMN: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_HEADERS: Final = "array<struct<key: string, value: binary>>"

_ADVICE: Final = "; set bad_records to a topic, which then gets such records"

RECORD: Final = ("topic", "key", "value", "headers", "timestamp")
"""The columns of a row for a topic."""
FOLDERS: Final = ("query", "batch")
"""The columns that readers of files get from the names of folders."""


class PlannedStep(NamedTuple):
    """A step of the job as a DataFrame; Spark's errors about it stand at its location."""

    location: Location
    sql: str | None
    view: DataFrame


class JobPlan(NamedTuple):
    """The rows for the sinks, and the steps to them.

    A row has the columns of RECORD, or of a sink of files the struct that `file_column` names.
    """

    rows: DataFrame
    steps: Sequence[PlannedStep]


def build(
    spark: SparkSession,
    job: Job,
    read: Callable[[Location, Source], DataFrame],
    tables: Mapping[str, DataFrame],
    *,
    registers: bool = False,
) -> JobPlan:
    """Plan a job. `read` returns the records of a source, with its columns. Raises Problem.

    With `registers` the schemas of sinks are registered, else only checked.
    """
    views: dict[str, DataFrame] = {}
    parsed: dict[str, DataFrame] = {}

    def add(name: str, view: DataFrame) -> None:
        views[name] = view
        view.createOrReplaceTempView(name)

    def good(name: str, marked: Marked, *counts: Column) -> DataFrame:
        # Without the observation Spark moves filters below the parser, and parses several times.
        observed = marked.rows.observe(f"{INPUT_METRICS}{name}", *counts, *bad_counts(marked))
        rows = with_values(observed)
        if job.bad_topic is None:
            return good_records(rows, _ADVICE)
        parsed[name] = rows
        return good_records(rows, None)

    for name, table in tables.items():
        add(name, table)
    for location, source in job.inputs:
        marked = parse(job, location, source, read(location, source))
        view = good(source.view, marked, f.count(f.lit(1)).alias(ROWS))
        if source.watermark is not None:
            view = _with_watermark(view, source.watermark, (*location, "watermark"))
        add(source.view, view)
    steps = []
    previous = job.inputs[-1][1].view
    for index, step in enumerate(job.steps):
        location = ("steps", index)
        if step.parse is not None:
            marked = parse_column((*location, "parse"), step.parse, views[step.input or previous])
            add(step.view, good(step.view, marked))
        else:
            add(step.view, _step(spark, location, step, views, previous))
        steps.append(PlannedStep(location, step.sql, views[step.view]))
        previous = step.view
    _check_sources_are_read(job, views)
    return JobPlan(reduce(DataFrame.unionByName, _outputs(job, views, parsed, registers)), steps)


def _check_sources_are_read(job: Job, views: Mapping[str, DataFrame]) -> None:
    """Raise Problem for a source whose records reach no sink."""
    written = {sink.view or job.last_view for _, sink in job.every_sink}
    plans = [views[name]._jdf.queryExecution().analyzed().toString() for name in written]
    for location, source in job.inputs:
        if not any(f"CollectMetrics {INPUT_METRICS}{source.view}," in plan for plan in plans):
            text = (
                f"no sink gets rows of view {source.view!r}: remove the source, or query its view"
            )
            raise Problem((*location, "view"), text)


# -- the steps -----------------------------------------------------------------------------------


def _step(
    spark: SparkSession, location: Location, step: Step, views: dict[str, DataFrame], previous: str
) -> DataFrame:
    if step.sql is not None:
        return _query(spark, (*location, "sql"), step.sql, views)
    view = views[step.input or previous]
    if step.watermark is not None:
        return _with_watermark(view, step.watermark, (*location, "watermark"))
    assert step.dedupe is not None
    place: Location = (*location, "dedupe", "columns")
    columns = [column_of(view, name, place) for name in step.dedupe.columns]
    if step.dedupe.within_watermark:
        return view.dropDuplicatesWithinWatermark(columns)
    return view.dropDuplicates(columns)


def _with_watermark(view: DataFrame, watermark: Watermark, location: Location) -> DataFrame:
    location = (*location, "column")
    column = column_of(view, watermark.column, location)
    kind = view.schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        kind_name = kind.simpleString()
        text = f"the watermark needs a column of type timestamp; {column!r} is {kind_name}"
        raise Problem(location, text)
    return view.withWatermark(column, watermark.delay)


def _query(spark: SparkSession, location: Location, sql: str, views: Collection[str]) -> DataFrame:
    try:
        return spark.sql(sql)
    except PySparkException as error:
        text = one_line(error)
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
            text = f"no view {name!r} stands before; {nearest(name, views)}"
        line, column = position_in(sql, error)
        raise TextProblem(location, text, line, column) from None


def position_in(sql: str, error: PySparkException) -> tuple[int, int]:
    """Return line and column in a query, from 0, that Spark's error is about."""
    if found := _LINE_AND_COLUMN.search(str(error)):
        return int(found[1]) - 1, int(found[2])
    for context in error.getQueryContext():
        before = sql[: max(0, context.startIndex())]
        return before.count("\n"), len(before) - before.rfind("\n") - 1
    return 0, 0


def one_line(error: PySparkException) -> str:
    """Return the first sentence of Spark's error, without its class and the query."""
    text = (error.getMessage() or str(error)).strip().splitlines()[0]
    text = re.sub(r"^\[[A-Z_.0-9]+\] ", "", text)
    return re.sub(r" SQLSTATE: \w+.*$", "", text)


# -- the sink ------------------------------------------------------------------------------------


def _outputs(
    job: Job, views: Mapping[str, DataFrame], parsed: Mapping[str, DataFrame], registers: bool
) -> list[DataFrame]:
    """Return the records of the sinks. Those of one view are made in one pass over it.

    Records that could not be parsed are written in the pass of the sinks of the parsed view; if it
    has no sinks, in a separate pass. `parsed` has the views that may have such records.
    """
    shapes = {
        file_column(location): _file_row(location, sink, views[sink.view or job.last_view])
        for location, sink in job.files
    }
    no_files = [f.lit(None).cast(kind).alias(name) for name, kind in shapes.items()]
    by_view: dict[str, list[Column]] = {}
    for location, sink in job.outputs:
        name = sink.view or job.last_view
        keep = f.col(BAD).isNull() if name in parsed else None
        record = _record(job, location, sink, views[name], keep, no_files, registers=registers)
        by_view.setdefault(name, []).append(record)
    for location, files in job.files:
        name = files.view or job.last_view
        by_view.setdefault(name, []).append(_file_record(location, files, views[name], shapes))
    parts = []
    for name, marked in parsed.items():
        is_bad = f.col(BAD).isNotNull()
        good = [f.when(~is_bad, record) for record in by_view.pop(name, [])]
        bad = f.when(is_bad, _bad_record(job.bad_topic or "", marked, no_files))
        parts.append(_written(marked, [*good, bad], f.coalesce(*good, bad), len(good) <= 1))
    for name, records in by_view.items():
        parts.append(_written(views[name], records, records[0], len(records) == 1))
    return parts


def _written(rows: DataFrame, records: list[Column], single: Column, is_single: bool) -> DataFrame:
    """Return the records of rows that are not null; each row has one at most if `is_single`."""
    record = single if is_single else f.explode(f.array(*records))
    named = rows.select(record.alias("record"))
    return named.where(f.col("record").isNotNull()).select("record.*")


def _record(
    job: Job,
    location: Location,
    sink: Sink,
    view: DataFrame,
    keep: Column | None,
    no_files: Sequence[Column],
    *,
    registers: bool,
) -> Column:
    """Return a row of a view as a record for a sink; null if the sink leaves it out.

    `keep` is the condition of the rows that are of the view; None if all are. `no_files` are the
    columns of files, which a record of a topic does not have.
    """
    if sink.where is not None:
        where = _condition((*location, "where"), sink.where, view)
        keep = where if keep is None else keep & where
    key, schemas = _sink_key(job, location, sink, view, keep, registers=registers)
    time = f.lit(None).cast("timestamp")
    if sink.timestamp is not None:
        place = (*location, "timestamp")
        column = column_of(view, sink.timestamp, place)
        if not isinstance(view.schema[column].dataType, TimestampType):
            raise Problem(place, f"column {column!r} must be of type timestamp")
        time = column_named(column)
    added = {LINEAGE_HEADER: _lineage(view)} if job.lineage else {}
    if sink.is_registered:
        names = _fields((*location, "codec"), view)
        given = {
            each: registered.Given(view.schema[each].dataType, column_named(each)) for each in names
        }
        text_of = registered.text_of(sink.codec, view.select(*map(column_named, names)).schema)
        form = sink_format(job.registry_settings, sink, sink.topic, text_of, location)
        value = registered.encoded(form, given, keep, registers=registers)
    else:
        value = _value((*location, "codec"), sink, view)
    record = f.struct(
        f.lit(sink.topic).alias("topic"),
        key.alias("key"),
        value.alias("value"),
        _headers(view, added, schemas).alias("headers"),
        time.alias("timestamp"),
        *no_files,
    )
    return record if sink.where is None else f.when(where, record)


def _bad_record(topic: str, marked: DataFrame, no_files: Sequence[Column]) -> Column:
    """Return the record for what could not be parsed: unchanged, with reason and place."""
    has = marked.columns
    added = {
        "barnabas.reason": f.col(BAD)["reason"],
        **{
            f"barnabas.{name}": f.col(f"_{name}").cast("string")
            for name in ("topic", "partition", "offset")
            if f"_{name}" in has
        },
        **({LINEAGE_HEADER: f.col(LINEAGE)} if LINEAGE in has else {}),
    }
    time = f.col("_timestamp") if "_timestamp" in has else f.lit(None)
    return f.struct(
        f.lit(topic).alias("topic"),
        f.col("_raw_key").alias("key"),
        f.col("_raw_value").alias("value"),
        _headers(marked, added).alias("headers"),
        time.cast("timestamp").alias("timestamp"),
        *no_files,
    )


def _headers(view: DataFrame, added: dict[str, Column], dropped: Sequence[str] = ()) -> Column:
    """Return the headers of the record, if the view has them, and those that are added."""
    own = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in added.items()
        )
    ).cast(_HEADERS)
    if "_headers" not in view.columns:
        return own
    given = f.coalesce(f.col("_headers"), f.array().cast(_HEADERS))
    if dropped:
        given = f.filter(given, lambda each: ~each["key"].isin(*dropped))
    return f.concat(given, own)


def _sink_key(
    job: Job,
    location: Location,
    sink: Sink,
    view: DataFrame,
    keep: Column | None,
    *,
    registers: bool,
) -> tuple[Column, Sequence[str]]:
    """Return the key of a record, and the headers of schemas that its parts do not have."""
    dropped = [] if sink.codec == "binary" else [SCHEMA_HEADERS["value"]]
    name = sink.key or ("_key" if "_key" in view.columns else None)
    if name is None:
        if sink.key_codec.is_registered:
            text = f"key_codec {sink.key_codec.codec} needs the key 'key', a column"
            raise Problem((*location, "key_codec"), text)
        return f.lit(None).cast("binary"), [*dropped, SCHEMA_HEADERS["key"]]
    name = column_of(view, name, (*location, "key"))
    kind = view.schema[name].dataType
    if not isinstance(kind, BinaryType):
        dropped.append(SCHEMA_HEADERS["key"])
    if not sink.key_codec.is_registered:
        return _binary(view, name, (*location, "key")), dropped
    place = (*location, "key_codec")
    text_of = registered.text_of(sink.key_codec.codec, kind)
    form = sink_format(job.registry_settings, sink.key_codec, sink.topic, text_of, place, "key")
    given = registered.Given(kind, column_named(name))
    return registered.encoded_key(form, name, given, keep, registers=registers), dropped


def file_column(location: Location) -> str:
    """Return the name of the column with the rows of a sink of files."""
    return f"_file_{location[-1]}"


def _file_row(location: Location, sink: FileSink, view: DataFrame) -> StructType:
    """Return the columns of a row in files of a sink; raises Problem for one that cannot be."""
    names = _fields((*location, "format"), view)
    rows = view.select(*map(column_named, names))
    kind = rows.schema
    for name in names:
        if name.lower() in FOLDERS:
            text = f"column {name!r} has the name of a folder of the files; rename it"
            raise Problem((*location, "path"), text)
    jvm = view.sparkSession._jvm
    assert jvm is not None
    packages = jvm.org.apache.spark.sql.execution.datasources
    form = {
        "parquet": packages.parquet.ParquetFileFormat,
        "json": packages.json.JsonFileFormat,
        "csv": packages.csv.CSVFileFormat,
    }[sink.format]()
    for name, each in zip(names, rows._jdf.schema().fields(), strict=True):
        if not form.supportDataType(each.dataType()):
            kind_name = kind[name].dataType.simpleString()
            text = f"column {name!r} is {kind_name}, which {sink.format} cannot hold"
            raise Problem((*location, "format"), text)
    return kind


def _file_record(
    location: Location, sink: FileSink, view: DataFrame, shapes: Mapping[str, StructType]
) -> Column:
    """Return a row of a view as a row of files; null if the sink leaves it out."""
    kinds = {"topic": "string", "headers": _HEADERS, "timestamp": "timestamp"}
    own = file_column(location)
    row = f.struct(*map(column_named, shapes[own].names))
    record = f.struct(
        *(f.lit(None).cast(kinds.get(name, "binary")).alias(name) for name in RECORD),
        *(
            (row if name == own else f.lit(None).cast(kind)).alias(name)
            for name, kind in shapes.items()
        ),
    )
    if sink.where is None:
        return record
    return f.when(_condition((*location, "where"), sink.where, view), record)


def _fields(location: Location, view: DataFrame) -> Sequence[str]:
    """Return the columns that become the value of a record, or a row in files."""
    if columns := [name for name in view.columns if not name.startswith("_")]:
        return columns
    raise Problem(location, "the view has no column for the value")


def _condition(location: Location, sql: str, view: DataFrame) -> Column:
    try:
        condition = f.expr(sql)
        view.where(condition)
    except PySparkException as error:
        raise TextProblem(location, one_line(error), *position_in(sql, error)) from None
    return condition


def _value(location: Location, sink: Sink, view: DataFrame) -> Column:
    if sink.codec == "json":
        row = f.struct(*map(column_named, _fields(location, view)))
        return f.to_json(row, sink.json_options).cast("binary")
    if "value" not in view.columns:
        text = f"codec {sink.codec} needs a column 'value'; {nearest('value', view.columns)}"
        raise Problem(location, text)
    wanted = StringType if sink.codec == "string" else BinaryType
    kind = view.schema["value"].dataType
    if not isinstance(kind, wanted):
        text = f"codec {sink.codec}: column 'value' is {kind.simpleString()}; cast it"
        raise Problem(location, text)
    return f.col("value").cast("binary")


def _binary(view: DataFrame, name: str, location: Location) -> Column:
    kind = view.schema[name].dataType
    if isinstance(kind, StructType | ArrayType | MapType):
        raise Problem(
            location,
            f"column {name!r} is {kind.simpleString()}; a key must be simple, or have a key_codec",
        )
    column = column_named(name)
    return column if isinstance(kind, BinaryType) else column.cast("string").cast("binary")


def _lineage(view: DataFrame) -> Column:
    location: Location = ("lineage",)
    if LINEAGE not in view.columns:
        text = (
            "the last view has no column _lineage: select it,"
            " or collect_list(_lineage) AS _lineage in an aggregate"
        )
        raise Problem(location, text)
    kind = view.schema[LINEAGE].dataType
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, ArrayType):
        return f.array_join(f.flatten(f.col(LINEAGE)), ",")
    if isinstance(kind, ArrayType):
        return f.array_join(f.col(LINEAGE), ",")
    if isinstance(kind, StringType):
        return f.col(LINEAGE)
    raise Problem(location, f"column _lineage is {kind.simpleString()}; it must be text or a list")
