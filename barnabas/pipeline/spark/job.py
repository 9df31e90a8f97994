"""A job in Spark: its session, its start, and what becomes of it.

run_job(read_job(path), monitor, tell, stop)
"""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.pipeline import register
from barnabas.pipeline.jobs.reading import JobError, JobFile
from barnabas.pipeline.jobs.spec import AVAILABLE_NOW, Job, Location, Problem, Source
from barnabas.pipeline.monitor.events import failure_text, read_event, view_finder
from barnabas.pipeline.monitor.file import ProgressFile
from barnabas.pipeline.monitor.progress import (
    FAILED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    Monitor,
    Progress,
    SinkState,
)
from barnabas.pipeline.spark.batch_output import BatchOutput
from barnabas.pipeline.spark.job_options import (
    FORMAT,
    check_options,
    sink_options,
    source_options,
)
from barnabas.pipeline.spark.packaged import UNDER_SUBMIT
from barnabas.pipeline.spark.plan import build
from barnabas.pipeline.spark.stream_rules import check_streaming
from barnabas.pipeline.spark.tables import Tables, plan_table

LOG_LEVELS: Final = ("off", "error", "warn", "info", "debug")
_LOG: Final = logging.getLogger("barnabas.pipeline")
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_POLL_SECONDS: Final = 0.5
_BATCH: Final = re.compile(r"batch = (\d+)")


class JobFailed(ValueError):
    """The failure of a job: one line that says why."""


# -- the session -----------------------------------------------------------------------------------


@contextmanager
def session_of(job: Job, *, log_level: str, **settings: str) -> Iterator[SparkSession]:
    """Start a JVM with the session of a job, and stop both; `settings` overrule the job's.

    Under `spark-submit` the JVM runs already. Raises JobFailed if there is no Java.
    """
    # About the version of pandas, which is not used.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # PySpark repeats on standard error what its exceptions say.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if UNDER_SUBMIT in os.environ:
        # Spark gives a program the last word, also about the cluster that it was submitted to.
        own = {key: text for key, text in job.spark.items() if key != "spark.master"}
        with own_interrupts():
            spark = _start_session({_TIME_ZONE: "UTC", **own, **settings}, lambda: "")
        with spark:
            yield spark
        return
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="barnabas-job-") as directory:
        logs = Path(directory) / "log4j2.properties"
        logs.write_text(_LOG4J.format(level=log_level))
        home = _spark_home(job, Path(directory) / "spark")
        with own_interrupts(), home, _stderr_of_java(Path(directory), log_level) as said:
            spark = _start_session({**_settings(job, logs), **settings}, said)
        with spark:
            yield spark


def _start_session(settings: Mapping[str, str], said: Callable[[], str]) -> SparkSession:
    """Start a session; `said` returns what the JVM gives as the reason if it does not start."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        why = said() or failure_text(str(error))
        raise JobFailed(f"Spark does not start: {why}") from error


def _settings(job: Job, logs: Path) -> Mapping[str, str]:
    own = {
        "spark.app.name": job.name,
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _TIME_ZONE: "UTC",
    }
    settings = {**own, **job.spark}
    if settings["spark.master"].startswith("local"):
        settings.setdefault("spark.python.daemon.module", "barnabas.pipeline.spark.daemon")
        # Over TCP Spark leaves Nagle's algorithm on: many hand-overs to a worker wait 40 ms.
        settings.setdefault("spark.python.unix.domain.socket.enabled", "true")
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    java = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" not in java:
        java = f"{java} -Dlog4j2.configurationFile={logs.as_uri()}".strip()
    return {**settings, "spark.driver.extraJavaOptions": java}


@contextmanager
def _spark_home(job: Job, directory: Path) -> Iterator[None]:
    """Start the JVM of a local job in `home_without_archive`.

    A SPARK_HOME that is set is left alone, and so are workers of another Python, which may have no
    PySpark.
    """
    chosen = job.spark.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
    is_local = job.spark.get("spark.master", "local").startswith("local")
    if "SPARK_HOME" in os.environ or chosen != sys.executable or not is_local:
        yield
        return
    with home_without_archive(directory):
        yield


@contextmanager
def home_without_archive(directory: Path) -> Iterator[None]:
    """Let Python workers import PySpark from where this process has it; `directory` is made.

    Spark puts SPARK_HOME/python/lib/pyspark.zip before all other modules. The archive has no
    compiled modules: each new worker compiles PySpark, which takes 0.6 s of CPU, and a job starts a
    dozen of them. So a JVM that starts in this block has a SPARK_HOME without the archive.
    """
    installed = Path(pyspark.__file__).parent
    directory.mkdir()
    for name in ("bin", "conf", "jars", "sbin"):
        if (installed / name).is_dir():
            (directory / name).symlink_to(installed / name)
    os.environ["SPARK_HOME"] = str(directory)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT, which SparkContext replaces with one that ends the program."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _stderr_of_java(directory: Path, log_level: str) -> Iterator[Callable[[], str]]:
    """Give the JVM a file for its standard error if its log is off; it inherits the descriptor.

    Yield a function that returns the last line in the file.
    """
    path = directory / "stderr"
    if log_level != "off":
        yield lambda: ""
        return
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield lambda: path.read_text(errors="replace").strip().rpartition("\n")[2]
    finally:
        os.dup2(before, 2)
        os.close(before)


_LOG4J: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def check_java() -> None:
    """Raise JobFailed unless there is a Java to start."""
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise JobFailed(f"JAVA_HOME is {home}, which has no bin/java; correct or unset it")
    if not home and shutil.which("java") is None:
        raise JobFailed("Spark needs Java: install Java 17 or newer, or set JAVA_HOME")


# -- check and run ---------------------------------------------------------------------------------


def check_job(file: JobFile, *, log_level: str = "off") -> str:
    """Plan the queries of a job without running them; return Spark's plan. Raises JobError."""
    job = file.job
    file.located(lambda: check_options(job))
    with session_of(job, log_level=log_level, **{"spark.master": "local[1]"}) as spark:
        register(spark)
        folder = file.path.parent
        tables = {
            table.view: file.located(
                partial(plan_table, spark, job, folder, ("tables", index), table)
            )
            for index, table in enumerate(job.tables)
        }
        rows = file.located(lambda: _rows(spark, job, tables, registers=False))
        plan: str = rows._jdf.queryExecution().analyzed().toString()
        return plan


def _read_stream(spark: SparkSession, job: Job, location: Location, source: Source) -> DataFrame:
    """Return the stream of a source's records."""
    options = source_options(job, location, source)
    try:
        return spark.readStream.format(FORMAT).options(**options).load()
    except PySparkException as error:
        raise Problem(location, failure_text(str(error))) from error


def _rows(
    spark: SparkSession, job: Job, tables: Mapping[str, DataFrame], *, registers: bool
) -> DataFrame:
    read = partial(_read_stream, spark, job)
    plan = build(spark, job, read, tables, registers=registers)
    check_streaming(spark, job, plan)
    return plan.rows


def run_job(
    file: JobFile,
    monitor: Monitor,
    tell: Callable[[Progress], None],
    stop: threading.Event,
    *,
    log_level: str = "off",
    read_sink: Callable[[], SinkState] = lambda: UNKNOWN,
) -> None:
    """Run a job until it ends, fails, or `stop` is set; `tell` gets its progress meanwhile.

    The progress of the query is in its checkpoint too. Raises JobError before anything is started,
    and JobFailed.
    """
    job = file.job
    tell(monitor.progress(time.time()))
    file.located(lambda: check_options(job))
    with session_of(job, log_level=log_level) as spark:
        register(spark)
        tables = Tables(spark, job, file.path.parent)
        output = BatchOutput(job, sink_options(job), file.checkpoint, file.path.parent)
        file.located(lambda: output.prepare(spark))

        def plan() -> DataStreamWriter:
            rows = file.located(lambda: _rows(spark, job, tables.read(), registers=True))
            return _writer(rows, job, output, file.checkpoint)

        writer = plan()
        watch = _Watch(spark, file, monitor, tell, read_sink)
        try:
            while True:
                query = file.located(partial(_start, writer))
                tables.drop_old()
                monitor.query, monitor.run, monitor.state = str(query.id), str(query.runId), RUNNING
                again = watch.until_end(query, stop, tables, plan)
                if again is None:
                    break
                writer = again
        except Exception as error:
            monitor.state, monitor.error = FAILED, monitor.error or str(error)
            raise
        finally:
            watch.tell()


def _writer(rows: DataFrame, job: Job, output: BatchOutput, checkpoint: str) -> DataStreamWriter:
    writer = rows.writeStream.queryName(job.name).outputMode(job.mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if job.files or job.mode == "update":
        # A data source in Python has one output, and Spark refuses update mode for it.
        writer = writer.foreachBatch(output.write)
    else:
        writer = writer.format(FORMAT).options(**sink_options(job))
    if job.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=job.trigger)


def _start(writer: DataStreamWriter) -> StreamingQuery:
    try:
        return writer.start()
    except PySparkException as error:
        raise Problem((), failure_text(str(error))) from error


class _Watch:
    """The watch over the queries of a job, one after the other: the monitor learns from it."""

    def __init__(
        self,
        spark: SparkSession,
        file: JobFile,
        monitor: Monitor,
        tell: Callable[[Progress], None],
        read_sink: Callable[[], SinkState],
    ) -> None:
        self._spark = spark
        self._monitor = monitor
        self._tell = tell
        self._read_sink = read_sink
        self._view_of = view_finder(file.job)
        self._kept = ProgressFile(file.checkpoint)

    def tell(self) -> None:
        """Tell the progress now, and keep it in the checkpoint."""
        progress = self._monitor.progress(time.time())
        self._tell(progress)
        self._kept.write(progress)

    def until_end(
        self,
        query: StreamingQuery,
        stop: threading.Event,
        tables: Tables,
        plan: Callable[[], DataStreamWriter],
    ) -> DataStreamWriter | None:
        """Watch a query to its end; return the plan of the next one if tables were read again."""
        again, monitor = None, self._monitor
        while not stop.is_set() and query.isActive and again is None:
            self._look(query)
            self.tell()
            stop.wait(_POLL_SECONDS)
            if tables.are_due:
                again = _planned_again(plan)
        if again is not None:
            _wait_for_end_of_batch(query, stop)
        if query.isActive:
            query.stop()
        failure = query.exception()
        self._read_events(query)
        if failure is not None:
            monitor.error = failure_text(str(failure))
            raise JobFailed(f"job {monitor.job} failed: {monitor.error}")
        monitor.cluster = self._read_sink()
        if again is None or stop.is_set():
            monitor.state = STOPPED
            return None
        return again

    def _look(self, query: StreamingQuery) -> None:
        self._read_events(query)
        if _is_waiting(query):
            self._monitor.progressed_at = time.time()
        self._monitor.cluster = self._read_sink()

    def _read_events(self, query: StreamingQuery) -> None:
        """Give the monitor the events that it has not seen."""
        monitor, last = self._monitor, query.lastProgress
        if last is None:
            return
        events = [last] if last.batchId <= monitor.last_batch + 1 else query.recentProgress
        for event in events:
            if event.batchId >= monitor.last_batch:
                is_new = event.batchId > monitor.last_batch
                run = str(query.runId)
                ended = _tasks_ended(self._spark, run, event.batchId) if is_new else None
                monitor.add(read_event(event.json, self._view_of, ended))


def _is_waiting(query: StreamingQuery) -> bool:
    """Return whether a query waits for data or for its next trigger."""
    return str(query.status["message"]).startswith("Waiting")


def _planned_again(plan: Callable[[], DataStreamWriter]) -> DataStreamWriter | None:
    """Read the tables that are due; if one cannot be read, the query keeps those that it has."""
    try:
        return plan()
    except JobError as error:
        _LOG.warning("%s; the job goes on with the tables that it has", error)
        return None


def _wait_for_end_of_batch(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until the query waits for data, or has ended another batch.

    A batch that is stopped is repeated: without its end a long one would be repeated for ever.
    """
    began = query.lastProgress
    while query.isActive and not stop.is_set():
        last = query.lastProgress
        has_ended = last is not None and (began is None or last.batchId > began.batchId)
        if has_ended or _is_waiting(query):
            return
        stop.wait(_POLL_SECONDS / 10)


def _tasks_ended(spark: SparkSession, run: str, batch: int) -> float | None:
    """Return when the last Spark job of a batch has ended, in seconds since the epoch.

    Spark's events have the tasks and the sink's commit as one figure.
    """
    context = spark.sparkContext
    try:
        store = context._jsc.sc().statusStore()
        for number in sorted(context.statusTracker().getJobIdsForGroup(run), reverse=True):
            data = store.job(number)
            found = _BATCH.search(data.description().getOrElse(None) or "")
            if found is not None and int(found[1]) == batch:
                return float(data.completionTime().get().getTime()) / 1000
            if found is not None and int(found[1]) < batch:
                return None
    except Py4JError:
        # A job may have left the store, or have no end yet.
        return None
    return None
