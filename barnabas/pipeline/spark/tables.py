"""The tables of a job: read before its start, kept by Spark, and read again when they are due."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from barnabas.pipeline.jobs.spec import AVAILABLE_NOW, Job, Location, Problem, Table, seconds_of
from barnabas.pipeline.monitor.events import failure_text
from barnabas.pipeline.spark.job_options import FORMAT, source_options
from barnabas.pipeline.spark.parsing import LINEAGE, good_records, parse, schema_of, with_values

_PACKAGES: Final = {
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0, for PySpark 4.2",
    "jdbc": "the coordinates of its driver",
}
_BAD: Final = "; write its key again, or a record of the key without a value"


class _Kept(NamedTuple):
    """A table that Spark keeps, and when it is due again on the monotonic clock."""

    rows: DataFrame
    due: float


class Tables:
    """The tables of a job by view. All rows of a batch see one version of each."""

    def __init__(self, spark: SparkSession, job: Job, folder: Path) -> None:
        """`folder` is that of the job file, at which paths begin."""
        self._spark = spark
        self._job = job
        self._folder = folder
        self._kept: dict[str, _Kept] = {}
        self._old: list[DataFrame] = []
        self._version = 0

    @property
    def are_due(self) -> bool:
        """Whether a table is to be read again."""
        return any(each.due <= time.monotonic() for each in self._kept.values())

    def read(self) -> Mapping[str, DataFrame]:
        """Read the tables that are new or due, and return all of them. Raises Problem."""
        self._version += 1
        for index, table in enumerate(self._job.tables):
            kept = self._kept.get(table.view)
            now = time.monotonic()
            if kept is not None and kept.due > now:
                continue
            due = float("inf")
            if table.refresh is not None and self._job.trigger != AVAILABLE_NOW:
                due = now + seconds_of(table.refresh)
            if kept is not None:
                # A table that cannot be read stays as it is until it is due again.
                self._kept[table.view] = kept._replace(due=due)
            rows = self._read(("tables", index), table)
            if kept is not None:
                self._old.append(kept.rows)
            self._kept[table.view] = _Kept(rows, due)
        return {view: kept.rows for view, kept in self._kept.items()}

    def drop_old(self) -> None:
        """Let Spark forget the versions that are replaced; no query may read them any more."""
        while self._old:
            self._old.pop().unpersist()

    def _read(self, location: Location, table: Table) -> DataFrame:
        # Spark takes a table with the same files for the one that it keeps: the condition differs.
        version = f.lit(self._version)
        rows = plan_table(self._spark, self._job, self._folder, location, table)
        rows = rows.where(version == version).persist()
        try:
            rows.count()
        except (PySparkException, Py4JError) as error:
            rows.unpersist()
            raise _problem(location, table, error) from error
        return rows


def plan_table(
    spark: SparkSession, job: Job, folder: Path, location: Location, table: Table
) -> DataFrame:
    """Return a table without reading its rows. Raises Problem."""
    if table.format is None:
        options = source_options(job, location, table, stream=False)
        records = spark.read.format(FORMAT).options(**options).load()
        marked = parse(job, location, table, last_of_each_key(records))
        return good_records(with_values(marked.rows), _BAD).drop(LINEAGE)
    reader = spark.read.format(table.format).options(**table.options)
    if table.format in ("csv", "json") and "mode" not in map(str.lower, table.options):
        # By default a line that does not fit becomes a row of nulls.
        reader = reader.option("mode", "FAILFAST")
    if table.columns:
        reader = reader.schema(schema_of(location, table.columns))
    try:
        if table.path is None:
            return reader.load()
        path = table.path
        return reader.load(path if "://" in path else str((folder / path).resolve()))
    except (PySparkException, Py4JError) as error:
        raise _problem(location, table, error) from error


def last_of_each_key(records: DataFrame) -> DataFrame:
    """Return the last record of each key that has a value, as compaction would leave it.

    A key is in several partitions after a topic has grown: there the latest timestamp wins.
    """
    record = f.struct(*map(f.col, records.columns))
    by_partition = (
        records.where(f.col("key").isNotNull())
        .repartition("key")
        .groupBy("key", "partition")
        .agg(f.max_by(record, "offset").alias("last"))
    )
    latest = f.max_by("last", f.struct("last.timestamp", "last.partition"))
    return (
        by_partition.groupBy("key")
        .agg(latest.alias("last"))
        .select("last.*")
        .where(f.col("value").isNotNull())
    )


def _problem(location: Location, table: Table, error: Exception) -> Problem:
    text = str(error)
    missing = "DATA_SOURCE_NOT_FOUND" in text or "ClassNotFoundException" in text
    if table.format in _PACKAGES and (missing or "No suitable driver" in text):
        package = _PACKAGES[table.format]
        advice = f"give spark.jars.packages in spark: {package}"
        return Problem((*location, "format"), f"Spark has no package for {table.format}; {advice}")
    key = "path" if "PATH_NOT_FOUND" in text else "view"
    return Problem((*location, key), f"table {table.view}: {failure_text(text)}")
