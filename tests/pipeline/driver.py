"""A driver of Spark, as a program: it runs the queries that it reads as lines of JSON.

python -m tests.pipeline.driver FOLDER NAME MASTER [key=value ...]

With the address of a Spark Connect server in place of a master it is a client.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tests.support.spark import spark_session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    folder, name, master, *settings = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Spark writes to the standard output too.
    os.dup2(2, 1)
    pairs = dict(each.split("=", 1) for each in settings)
    with _session(Path(folder), master, pairs) as (spark, processes):
        from tests.pipeline.faulty_sink import FaultySink

        spark.dataSource.register(FaultySink)
        print(json.dumps({"processes": processes}), file=answers)
        driver = _Driver(spark, name, " ".join(map(str, processes)))
        for line in sys.stdin:
            print(json.dumps(driver.answer(json.loads(line))), file=answers)


@contextmanager
def _session(
    folder: Path, master: str, settings: Mapping[str, str]
) -> Iterator[tuple["SparkSession", list[int]]]:
    """Yield a session, and the processes that end with the driver."""
    if master.startswith("sc://"):
        from pyspark.sql import SparkSession

        remote = SparkSession.builder.remote(master).getOrCreate()
        yield remote, [os.getpid()]
        remote.stop()
        return
    with spark_session(folder, master=master, **settings) as spark:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        _warm_up(spark, folder)
        yield spark, [os.getpid(), gateway.jvm.java.lang.ProcessHandle.current().pid()]


def _warm_up(spark: "SparkSession", folder: Path) -> None:
    """Load what the first query needs: a spare driver does so while others work."""
    lines = folder / "lines"
    lines.mkdir()
    (lines / "one").write_text("1\n")
    stream = spark.readStream.format("text").load(str(lines)).repartition(2)
    query = (
        # Arrow functions need pandas, which the pipeline does without.
        stream.writeStream.foreach(_ignore)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _ignore(row: object) -> None:
    """Take a row in a Python worker."""


class _Numbers(StatefulProcessor):
    """The number of each record among those of its key; the state is the last number."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "last bigint")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: "Iterator[pd.DataFrame]",
        timerValues: TimerValues,  # noqa: ARG002
    ) -> "Iterator[pd.DataFrame]":
        import pandas as pd

        last = self._last.get()[0] if self._last.exists() else 0
        count = sum(map(len, rows))
        self._last.update((last + count,))
        numbers = [f"{key[0]}={last + each + 1}" for each in range(count)]
        yield pd.DataFrame({"key": numbers, "value": numbers})


class _Driver:
    """The queries of one session."""

    def __init__(self, spark: "SparkSession", name: str, processes: str) -> None:
        self.spark = spark
        self.name = name
        self.processes = processes
        self.queries: dict[str, StreamingQuery] = {}

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; the answer has the error of the query, None if it ended well.

        The answer to `look` comes at once: None while the query runs.
        """
        try:
            match order["order"]:
                case "start":
                    self.start(order)
                case "await":
                    self.queries.pop(order["query"]).awaitTermination()
                case "look":
                    query = self.queries[order["query"]]
                    if not query.isActive:
                        return {"error": str(query.exception() or "no error")}
                case "stop":
                    self.queries.pop(order["query"]).stop()
                case "end":
                    threading.Thread(target=sys.stdin.close, daemon=True).start()
        except Exception as error:
            return {"error": str(error)}
        return {"error": None}

    def start(self, order: dict[str, Any]) -> None:
        """Start a query over all that is there: a batch for each file, or each 20 records."""
        rows = self.lines(order) if order["records"] is None else self.records(order)
        if len(order["topics"]) > 1:
            topics = f.explode(f.array(*map(f.lit, order["topics"]))).alias("topic")
            rows = rows.select("key", "value", topics)
        options = {
            "checkpointLocation": order["checkpoint"],
            "test.folder": order["folder"],
            "test.driver": self.name,
            "test.processes": self.processes,
            **order["options"],
        }
        if order["for_each"]:

            def put(batch: "DataFrame", number: int) -> None:
                writer = batch.write.format("faulty").mode("append").options(**options)
                writer.option("batchId", str(number)).save()

            writer = rows.writeStream.foreachBatch(put)
            writer = writer.option("checkpointLocation", order["checkpoint"])
        else:
            writer = rows.writeStream.format("faulty").options(**options)
        self.queries[order["query"]] = writer.trigger(availableNow=True).start()

    def lines(self, order: dict[str, Any]) -> "DataFrame":
        """Return the lines of files."""
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        rows = lines.load(order["input"]).selectExpr("value AS key", "value")
        if order["matches"] is None:
            # Round-robin: the tasks of a batch depend on the number of tasks only.
            return rows.repartition(order["tasks"])
        return rows.join(lines.load(order["matches"]).selectExpr("value AS key"), "key")

    def records(self, order: dict[str, Any]) -> "DataFrame":
        """Return the records of a topic, or with a state their numbers by key."""
        options = {
            "kafka.bootstrap.servers": order["options"]["kafka.bootstrap.servers"],
            "subscribe": order["records"],
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
        }
        rows = self.spark.readStream.format("barnabas").options(**options).load()
        rows = rows.selectExpr("string(key) AS key", "string(value) AS value")
        if not order["counts"]:
            return rows
        self.spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        columns = "key string, value string"
        return rows.groupBy("key").transformWithStateInPandas(_Numbers(), columns, "append", "none")


if __name__ == "__main__":
    main()
