"""A Spark driver that runs loads on request: `python spark_job.py SERVERS DIRECTORY`.

Requests come as JSON lines on standard input, answers go as JSON lines to standard output. Maven
Central must have the stock connector of this PySpark.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
STOCK, OURS = "kafka", "barnabas"


class Driver:
    """A session with both connectors."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self.directory = directory
        self.session = (
            SparkSession.builder.master("local[2]")
            .appName("benchmark")
            .config("spark.jars.packages", CONNECTOR)
            .config("spark.ui.enabled", "false")
            .config("spark.python.daemon.module", "barnabas.pipeline.spark.daemon")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .getOrCreate()
        )
        self.session.sparkContext.setLogLevel("ERROR")
        from barnabas import pipeline

        pipeline.register(self.session)

    def read(self, connector: str, topic: str) -> dict[str, float]:
        """Read a whole topic in one batch, and drop the rows."""
        frame = self._options(self.session.read.format(connector), connector, topic)
        began = time.perf_counter()
        frame.load().write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def copy(self, connector: str, topic: str, target: str) -> dict[str, float]:
        """Copy a topic into another in one micro-batch."""
        frame = self._options(self.session.readStream.format(connector), connector, topic).load()
        began = time.perf_counter()
        query = self._written(frame, connector, target, f"{connector}-{target}")
        query.trigger(availableNow=True).start().awaitTermination()
        return {"seconds": time.perf_counter() - began}

    def stream(self, topic: str, name: str) -> dict[str, float]:
        """Read a topic by our source in micro-batches of 500,000 rows; count them."""
        reader = self._options(self.session.readStream.format(OURS), OURS, topic)
        frame = reader.option("maxOffsetsPerTrigger", 500_000).load()
        query = frame.writeStream.format("noop").option(
            "checkpointLocation", str(self.directory / name)
        )
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        return {"rows": float(sum(each["numInputRows"] for each in running.recentProgress))}

    def triggers(
        self, connector: str, topic: str, target: str, count: int
    ) -> dict[str, float | list[float]]:
        """Copy 2,000 rows in 4 tasks with each trigger; return their number and times in ms."""
        reader = self._options(self.session.readStream.format(connector), connector, topic)
        frame = reader.option("maxOffsetsPerTrigger", 2_000).load()
        query = self._written(frame, connector, target, f"{connector}-{target}")
        running = query.trigger(processingTime="0 seconds").start()
        while len(_batches(running.recentProgress)) < count:
            if running.exception() is not None:
                raise RuntimeError(str(running.exception()))
            time.sleep(0.1)
        running.stop()
        # The first triggers compile and connect.
        taken = [
            each["durationMs"]["triggerExecution"] for each in _batches(running.recentProgress)
        ]
        warm = taken[len(taken) // 3 :]
        return {"p50_ms": float(median(warm)), "triggers_ms": warm, "triggers": len(taken)}

    def _options(self, reader: Any, connector: str, topic: str) -> Any:
        reader = reader.option("kafka.bootstrap.servers", self.servers).option("subscribe", topic)
        if connector == STOCK:
            reader = reader.option("kafka.isolation.level", "read_committed")
        return reader.option("startingOffsets", "earliest")

    def _written(self, frame: DataFrame, connector: str, target: str, name: str) -> Any:
        writer = frame.select("key", "value").writeStream.format(connector)
        if connector == OURS:
            writer = writer.option("sinkId", name)
        return (
            writer.option("kafka.bootstrap.servers", self.servers)
            .option("topic", target)
            .option("checkpointLocation", str(self.directory / name))
        )


def _batches(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in progress if each["numInputRows"] == 2_000]


def main() -> None:
    servers, directory = sys.argv[1:]
    driver = Driver(servers, Path(directory))
    print(json.dumps({"spark": driver.session.version}), flush=True)
    for line in sys.stdin:
        load, *arguments = json.loads(line)
        print(json.dumps(getattr(driver, load)(*arguments)), flush=True)
    driver.session.stop()


if __name__ == "__main__":
    main()
