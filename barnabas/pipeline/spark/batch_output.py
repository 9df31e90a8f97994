"""A batch as foreachBatch gets it: its topics are decided, then its files are written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from barnabas.pipeline.jobs.spec import FileSink, Job, Problem
from barnabas.pipeline.monitor.events import failure_text
from barnabas.pipeline.sink.options import Delivery
from barnabas.pipeline.spark.job_options import FORMAT
from barnabas.pipeline.spark.plan import RECORD, file_column

_QUERY_ID: Final = "sql.streaming.queryId"
_DONE: Final = "_SUCCESS"
_MARKS_DONE: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


class BatchOutput:
    """The output of a job's batches. `folder` is that of the job file, at which paths begin."""

    def __init__(self, job: Job, options: Mapping[str, str], checkpoint: str, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._options = dict(options)
        if self._options.get("delivery") != Delivery.AT_LEAST_ONCE.value:
            # The digest of the checkpoint's offsets, and a number that a repetition has again.
            self._options["checkpointLocation"] = checkpoint
        self._is_numbered = "checkpointLocation" in self._options

    def prepare(self, spark: SparkSession) -> None:
        """Make the folders of the files; raises Problem for one that cannot be."""
        for location, sink in self._job.files:
            path = self._path(sink)
            try:
                _file_system(spark, path).mkdirs(_hadoop_path(spark, path))
            except Py4JError as error:
                text = f"no files can be written here: {failure_text(str(error))}"
                raise Problem((*location, "path"), text) from error

    def write(self, rows: DataFrame, number: int) -> None:
        """Write batch `number` of the query that calls this."""
        if not self._job.files:
            self._write_topics(rows, number)
            return
        # For several outputs the queries of the job would be computed several times.
        rows.persist()
        try:
            of_topics = rows.where(f.col("topic").isNotNull()).select(*RECORD)
            self._write_topics(of_topics, number)
            query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            for location, sink in self._job.files:
                column = file_column(location)
                of_files = rows.where(f.col(column).isNotNull()).select(f"{column}.*")
                self._write_files(sink, of_files, f"query={query}/batch={number}")
        finally:
            rows.unpersist()

    def _write_topics(self, rows: DataFrame, number: int) -> None:
        writer = rows.write.format(FORMAT).mode("append").options(**self._options)
        if self._is_numbered:
            writer = writer.option("batchId", number)
        writer.save()

    def _write_files(self, sink: FileSink, rows: DataFrame, name: str) -> None:
        """Write the folder of a batch, unless it is complete."""
        path = f"{self._path(sink)}/{name}"
        spark = rows.sparkSession
        done = _hadoop_path(spark, f"{path}/{_DONE}")
        if not _file_system(spark, path).exists(done):
            writer = rows.write.format(sink.format).options(**sink.options)
            writer.option(_MARKS_DONE, "true").mode("overwrite").save(path)

    def _path(self, sink: FileSink) -> str:
        path = sink.path.rstrip("/")
        return path if "://" in path else str((self._folder / path).resolve())


def _hadoop_path(spark: SparkSession, path: str) -> Any:
    assert spark._jvm is not None
    return spark._jvm.org.apache.hadoop.fs.Path(path)


def _file_system(spark: SparkSession, path: str) -> Any:
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    return _hadoop_path(spark, path).getFileSystem(settings)
