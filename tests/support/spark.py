"""A Spark session for tests, whose Python workers import Barnabas and the tests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.jars import CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

_ENDS_WITHIN_S = 120
_JAVA = "spark.driver.extraJavaOptions"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Tests are short: compiled code of the first level starts fastest.
    _JAVA: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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
    with pytest.MonkeyPatch.context() as inherited:
        inherited.setenv("PYSPARK_PYTHON", sys.executable)
        inherited.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        inherited.setenv("PYTHONPATH", os.pathsep.join(paths))
        inherited.setenv("SPARK_LOCAL_IP", "127.0.0.1")
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


def archive() -> Path:
    """Return the archive of the classes of this Spark."""
    import pyspark

    return CACHE / f"spark-{pyspark.__version__}.jsa"


def load_classes(option: str) -> None:
    """Run a driver to its end with an option of Java."""
    import pyspark

    java = {_JAVA: f"{SETTINGS[_JAVA]} {option}"}
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as inherited:
        # An archive names jars, which must be there later too.
        inherited.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
        with spark_session(Path(directory), **java) as session:
            session.range(1).mapInPandas(lambda frames: frames, "id long").collect()
            rows = session.readStream.format("rate").load().groupBy("value").count()
            query = rows.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
            query.start().awaitTermination()


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
    gateway.proc.wait(_ENDS_WITHIN_S)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _home(directory: Path, master: str) -> AbstractContextManager[None]:
    """Give workers that this machine starts the compiled modules of PySpark, as jobs have them."""
    from barnabas.pipeline.spark.job import home_without_archive

    if "SPARK_HOME" in os.environ or not master.startswith("local"):
        return nullcontext()
    directory.parent.mkdir(parents=True, exist_ok=True)
    return home_without_archive(directory)
