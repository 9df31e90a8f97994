"""A Spark session for tests, whose Python workers import Barnabas and the tests."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Tests are short: compiled code of the first level starts fastest.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
}


@contextmanager
def spark_session(
    directory: Path, *, master: str = "local[2]", **settings: str
) -> Iterator["SparkSession"]:
    """Start a session, and end it; `settings` may have underscores for all dots.

    A process has one session at a time. The files of Spark are below `directory`. The JVM goes on
    until `end_jvm`, and the next session starts in it; one with settings has a JVM for itself.
    """
    from pyspark.sql import SparkSession

    if settings:
        end_jvm()
    with _environment():
        builder = SparkSession.builder.master(master).appName("tests")
        places = {
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        own = {
            key if "." in key else key.replace("_", "."): value for key, value in settings.items()
        }
        for key, value in {**SETTINGS, **places, **own}.items():
            builder = builder.config(key, value)
        with _home(directory / "home", master):
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
            if settings:
                end_jvm()


def end_jvm() -> None:
    """End the JVM of this process, if there is one; the next session starts another one."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    # The JVM exits at the end of its input.
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _home(directory: Path, master: str) -> AbstractContextManager[None]:
    """Give workers that this machine starts the compiled modules of PySpark, as jobs have them."""
    from barnabas.pipeline.spark.job import home_without_archive

    if "SPARK_HOME" in os.environ or not master.startswith("local"):
        return nullcontext()
    directory.parent.mkdir(parents=True, exist_ok=True)
    return home_without_archive(directory)


@contextmanager
def _environment() -> Iterator[None]:
    """Set what the JVM and the Python workers inherit."""
    above = os.environ.get("PYTHONPATH", "")
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), above])),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
