#!/usr/bin/env bash
# Seen: with trigger(continuous=...) a sink written in Python (DataSourceStreamWriter) gets no rows. Its write() is never
#   called, its commit() is called for every epoch with a None for each task, the query stays active without an error,
#   and its checkpoint has the epochs as committed: a restart goes on behind the rows.
# Versions: pyspark 4.3.0. With trigger(processingTime=...) the same sink gets all rows.
# Why a guess is wrong: Spark refuses sources in Python for this trigger ("does not support continuous processing"), and
#   sinks without streaming writes, so a sink that it takes seems to be served.
# What follows: a sink in Python must raise in commit() if a message is None, which no micro-batch has. Users take
#   micro-batches, or a sink of the JVM, and compare counts.
# Source: PythonTable declares STREAMING_WRITE; the operator that runs Python for the tasks' rows is planned for
#   micro-batches, and WriteToContinuousDataSourceExec uses the writer factory alone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1

cat >"$dir/drops.py" <<'END_OF_PYTHON'
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

folder = sys.argv[1]

def note(trigger, text):
    with open(f"{folder}/{trigger}", "a") as file:
        file.write(f"{text}\n")

class Sink(DataSource):
    @classmethod
    def name(cls):
        return "notes"

    def streamWriter(self, schema, overwrite):
        return Writer(self.options["notes"])

class Writer(DataSourceStreamWriter):
    def __init__(self, trigger):
        self.trigger = trigger

    def write(self, rows):
        for _ in rows:
            note(self.trigger, "row")
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        note(self.trigger, "commit of None" if None in messages else "commit of messages")

    def abort(self, messages, batchId):
        note(self.trigger, "abort")

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.dataSource.register(Sink)
for trigger in ("processingTime", "continuous"):
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).option("numPartitions", 1).load()
    writer = rows.select("value").writeStream.format("notes").option("notes", trigger)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{trigger}")
    query = writer.trigger(**{trigger: "1 second"}).start()
    query.awaitTermination(30)
    active = query.isActive
    query.stop()
    seen = open(f"{folder}/{trigger}").read().splitlines()
    epochs = [each for each in os.listdir(f"{folder}/checkpoint-{trigger}/commits") if each.isdigit()]
    print(
        f"{trigger}: active {active}, rows written {'row' in seen}, epochs committed {len(epochs) > 1},",
        *sorted({each for each in seen if each.startswith('commit')}),
    )
END_OF_PYTHON
"$dir/venv/bin/pip" list 2>/dev/null | grep -E "pyspark|pyarrow"
seen=$(PYSPARK_PYTHON="$dir/venv/bin/python" "$dir/venv/bin/python" "$dir/drops.py" "$dir" 2>/dev/null)
echo "$seen"
[ "$seen" = "processingTime: active True, rows written True, epochs committed True, commit of messages
continuous: active True, rows written False, epochs committed True, commit of None" ]
echo "behaviour: in continuous processing a sink in Python loses all rows, without an error"
