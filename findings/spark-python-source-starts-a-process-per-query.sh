#!/usr/bin/env bash
# Seen: each start of a streaming query with a source in Python (DataSourceStreamReader) starts a Python process for
#   its offsets, which imports PySpark anew, and ends with the query. The processes that write a sink's rows and that
#   commit them are forked from daemons, and are the same ones for all queries of the session.
# Versions: pyspark 4.3.0.
# Why a guess is wrong: workers are reused (`spark.python.worker.reuse` is true by default), and they are, for all parts
#   of a data source but this one.
# What follows: short queries (Trigger.AvailableNow in a loop, a query for each file or tenant) pay the imports each time,
#   about half a second of CPU without those of the source; what a source keeps in its process is gone with the query,
#   and what a sink keeps there is shared by all queries. Keep one query running, or many topics in one query.
# Source: PythonStreamingSourceRunner, which creates its worker with the daemon switched off;
#   pyspark/sql/streaming/python_streaming_source_runner.py.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1

cat >"$dir/queries.py" <<'END_OF_PYTHON'
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource, DataSourceStreamReader, DataSourceStreamWriter, InputPartition, WriterCommitMessage
)

QUERIES = 3
folder = sys.argv[1]

def note(part):
    with open(f"{folder}/{part}", "a") as file:
        file.write(f"{os.getpid()}\n")

class Counter(DataSource):
    @classmethod
    def name(cls):
        return "counter"

    def schema(self):
        return "number int"

    def streamReader(self, schema):
        return Reader()

    def streamWriter(self, schema, overwrite):
        return Writer()

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        note("offsets of the source")
        return {"end": 0}

    def latestOffset(self):
        return {"end": 3}

    def partitions(self, start, end):
        return [InputPartition((start["end"], end["end"]))]

    def read(self, partition):
        for number in range(*partition.value):
            yield (number,)

class Writer(DataSourceStreamWriter):
    def write(self, rows):
        assert sum(1 for _ in rows) == 3
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        note("commits of the sink")

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.dataSource.register(Counter)
for number in range(QUERIES):
    rows = spark.readStream.format("counter").load()
    writer = rows.writeStream.format("counter").option("checkpointLocation", f"{folder}/checkpoint-{number}")
    writer.trigger(availableNow=True).start().awaitTermination()
for part in ("offsets of the source", "commits of the sink"):
    processes = set(open(f"{folder}/{part}").read().split())
    print(f"{part}: {QUERIES} queries in {len(processes)} processes")
END_OF_PYTHON
"$dir/venv/bin/pip" list 2>/dev/null | grep -E "pyspark|pyarrow"
seen=$(PYSPARK_PYTHON="$dir/venv/bin/python" "$dir/venv/bin/python" "$dir/queries.py" "$dir" 2>/dev/null)
echo "$seen"
[ "$seen" = "offsets of the source: 3 queries in 3 processes
commits of the sink: 3 queries in 1 processes" ]
echo "behaviour: every query with a source in Python starts a process, and all queries commit in one"
