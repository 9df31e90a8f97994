#!/usr/bin/env bash
# Seen: while a DataFrame of a folder is persisted, every new spark.read of the folder gives its old rows, also with
#   another schema or filter, and after another program has added files; inputFiles() is empty then. persist() of the
#   new DataFrame does nothing, and unpersist() of the old one drops the new one's rows too.
# Versions: pyspark 4.3.0.
# Why a guess is wrong: spark.read lists the files again, and a DataFrame seems to be a cache of its own. The cache is
#   the application's and is found by plan, and two plans over files are equal if their root paths are.
# What follows: a job that reads a table again must unpersist the last version before, or make the plans differ, for
#   instance by a condition with a number of the version; spark.catalog.refreshByPath refreshes both.
# Source: InMemoryFileIndex.equals and CacheManager.lookupCachedData in Spark's sources.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0

cat >"$dir/reads.py" <<'END'
import glob, shutil, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

folder = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.range(1).write.parquet(f"{folder}/table")
spark.range(5).coalesce(1).write.parquet(f"{folder}/other")

first = spark.read.parquet(f"{folder}/table").persist()
print("rows when persisted:", first.count())

def new():
    return spark.read.parquet(f"{folder}/table")

def add(name):
    shutil.copy(glob.glob(f"{folder}/other/*.parquet")[0], f"{folder}/table/{name}.parquet")

add("one")
print("rows of a new DataFrame:", new().count(), "of files:", len(new().inputFiles()))
print("rows with a schema of its own:", spark.read.schema("id long").parquet(f"{folder}/table").count())
first.unpersist()
print("rows when the first is unpersisted:", new().count())

print("rows of version 1:", new().where(f.lit(1) == f.lit(1)).persist().count())
add("two")
print("rows of version 2:", new().where(f.lit(2) == f.lit(2)).persist().count())
END
"$dir/venv/bin/pip" list 2>/dev/null | grep pyspark
seen=$("$dir/venv/bin/python" "$dir/reads.py" "$dir" 2>/dev/null)
echo "$seen"
[ "$seen" = "rows when persisted: 1
rows of a new DataFrame: 1 of files: 0
rows with a schema of its own: 1
rows when the first is unpersisted: 6
rows of version 1: 6
rows of version 2: 11" ]
echo "behaviour: a persisted DataFrame of a folder hides its new files from all later reads"
