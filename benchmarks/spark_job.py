"""A Spark driver that runs loads on request, in a process of its own.

Maven Central must have the stock connector of this PySpark.
"""

import time
from pathlib import Path
from statistics import median
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from benchmarks.child import tell, told

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
STOCK, OURS = "kafka", "barnabas"
TRIGGERS = 39
"""The triggers that are awaited: all but the last of the topic."""


class Driver:
    """A session whose source and sink are those of one connector."""

    def __init__(self, connector: str, servers: str, directory: Path) -> None:
        self.connector = connector
        self.servers = servers
        self.directory = directory
        self.session = (
            SparkSession.builder.master("local[2]")
            .appName("benchmark")
            .config("spark.driver.memory", "3g")
            .config("spark.ui.enabled", "false")
            .config("spark.python.daemon.module", "barnabas.pipeline.spark.daemon")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(directory / f"warehouse-{connector}"))
            .config("spark.jars.packages", PACKAGE)
            .getOrCreate()
        )
        self.session.sparkContext.setLogLevel("ERROR")
        if connector == OURS:
            from barnabas import pipeline

            pipeline.register(self.session)

    def compiling_s(self) -> float:
        """Return the seconds that the JVM has compiled so far."""
        jvm: Any = self.session.sparkContext._jvm
        bean = jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
        return float(bean.getTotalCompilationTime() / 1e3)

    def read(self, topic: str, _target: str) -> dict[str, float]:
        """Read a whole topic in one batch, and drop the rows."""
        frame = self._options(self.session.read, topic).load()
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def copy(self, topic: str, target: str) -> dict[str, float]:
        """Copy a topic into another in one micro-batch."""
        return self._timed(self._records(topic).select("key", "value"), target)

    def join(self, topic: str, target: str) -> dict[str, float]:
        """Join two streams, both of them this topic, on partition and offset in one micro-batch."""
        one, other = (self._records(topic) for _ in range(2))
        left = one.selectExpr("string(offset * 64 + partition) AS key", "value")
        right = other.selectExpr("string(offset * 64 + partition) AS key", "timestamp")
        return self._timed(left.join(right, "key").select("key", "value"), target)

    def stream(self, topic: str, name: str) -> dict[str, float]:
        """Read a topic in micro-batches of 500,000 rows; count them."""
        frame = self._records(topic, maxOffsetsPerTrigger=500_000)
        query = frame.writeStream.format("noop").option(
            "checkpointLocation", str(self.directory / name)
        )
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        return {"rows": float(sum(each["numInputRows"] for each in running.recentProgress))}

    def triggers(self, topic: str, target: str) -> dict[str, float]:
        """Copy 2,000 rows in 4 tasks with each trigger; return their number and median in ms."""
        frame = self._records(topic, maxOffsetsPerTrigger=2_000).select("key", "value")
        running = self._written(frame, target).trigger(processingTime="0 seconds").start()
        while len(_batches(running.recentProgress)) < TRIGGERS:
            if running.exception() is not None:
                raise RuntimeError(str(running.exception()))
            time.sleep(0.1)
        running.stop()
        # The first triggers compile and connect.
        taken = [
            each["durationMs"]["triggerExecution"] for each in _batches(running.recentProgress)
        ]
        warm = taken[len(taken) // 3 :]
        return {"p50_ms": float(median(warm)), "triggers": len(taken)}

    def _timed(self, frame: DataFrame, target: str) -> dict[str, float]:
        """Write a stream to a topic until all is read."""
        began = time.perf_counter()
        self._written(frame, target).trigger(availableNow=True).start().awaitTermination()
        return {"seconds": time.perf_counter() - began}

    def _records(self, topic: str, **options: int) -> DataFrame:
        reader: DataFrame = self._options(self.session.readStream, topic).options(**options).load()
        return reader

    def _options(self, reader: Any, topic: str) -> Any:
        reader = reader.format(self.connector).option("kafka.bootstrap.servers", self.servers)
        if self.connector == STOCK:
            reader = reader.option("kafka.isolation.level", "read_committed")
        return reader.option("subscribe", topic).option("startingOffsets", "earliest")

    def _written(self, frame: DataFrame, target: str) -> Any:
        writer = frame.writeStream.format(self.connector)
        if self.connector == OURS:
            writer = writer.option("sinkId", target)
        return (
            writer.option("kafka.bootstrap.servers", self.servers)
            .option("topic", target)
            .option("checkpointLocation", str(self.directory / target))
        )


def _batches(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in progress if each["numInputRows"] == 2_000]


def serve(connector: str, servers: str, directory: str) -> None:
    """Send the version of Spark, then run the loads that are asked for, up to an empty line."""
    driver = Driver(connector, servers, Path(directory))
    tell({"spark": driver.session.version})
    while asked := told():
        load, *arguments = asked
        before = driver.compiling_s()
        found = getattr(driver, load)(*arguments)
        tell(found | {"compiling_s": driver.compiling_s() - before})
    driver.session.stop()
