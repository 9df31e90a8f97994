"""A driver of Spark, as a program: it runs the queries that it reads as lines of JSON.

python -m tests.pipeline.driver FOLDER NAME MASTER [key=value ...]
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from tests.support.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def main() -> None:
    folder, name, master, *settings = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Spark writes to the standard output too.
    os.dup2(2, 1)
    pairs = dict(each.split("=", 1) for each in settings)
    with spark_session(Path(folder), master=master, **pairs) as spark:
        from tests.pipeline.faulty_sink import FaultySink

        spark.dataSource.register(FaultySink)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        _warm_up(spark, Path(folder))
        processes = [os.getpid(), gateway.jvm.java.lang.ProcessHandle.current().pid()]
        print(json.dumps({"processes": processes}), file=answers)
        driver = _Driver(spark, name, " ".join(map(str, processes)))
        for line in sys.stdin:
            print(json.dumps(driver.answer(json.loads(line))), file=answers)


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
        """Start a query over all files that are there, a batch for each."""
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        rows = lines.load(order["input"]).selectExpr("value AS key", "value")
        if order["matches"] is None:
            # Round-robin: the tasks of a batch depend on the number of tasks only.
            rows = rows.repartition(order["tasks"])
        else:
            rows = rows.join(lines.load(order["matches"]).selectExpr("value AS key"), "key")
        if len(order["topics"]) > 1:
            topics = f.explode(f.array(*map(f.lit, order["topics"]))).alias("topic")
            rows = rows.select("key", "value", topics)
        writer = (
            rows.writeStream.format("faulty")
            .option("checkpointLocation", order["checkpoint"])
            .option("test.folder", order["folder"])
            .option("test.driver", self.name)
            .option("test.processes", self.processes)
            .options(**order["options"])
            .trigger(availableNow=True)
        )
        self.queries[order["query"]] = writer.start()


if __name__ == "__main__":
    main()
