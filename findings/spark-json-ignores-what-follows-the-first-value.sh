#!/usr/bin/env bash
# Seen: Spark reads the first JSON value of a text and ignores the rest, whatever it is. '{"id": "a"} {"id": "b"}',
#   '{"id": "a"}}' and '{"id": "a"} x' are the row "a" for from_json() in every mode, FAILFAST among them, for
#   try_parse_json() and for spark.read.json(): no error, no null, and nothing in the column of corrupt records.
# Versions: pyspark 4.3.0.
# Why a guess is wrong: a text that is cut off is told in all of these ways, and FAILFAST promises an exception for
#   malformed records. An array is told too by from_json() with the schema of an object, so a second object seems to be.
# What follows: a producer that writes two documents into one record loses the second in a pipeline that counts its bad
#   records and finds none. Where that matters, compare the length of to_json() of what was read, or parse in Python.
# Source: JacksonParser.parse of Spark moves to the first token, converts one value and closes the parser.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0

cat >"$dir/reads.py" <<'END_OF_PYTHON'
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

folder = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
texts = ['{"id": "a"} {"id": "b"}', '{"id": "a"}}', '{"id": "a"} x', '{"id": "a"']

def failfast(text):
    row = spark.createDataFrame([(text,)], "value string")
    try:
        return row.select(f.from_json("value", "id string", {"mode": "FAILFAST"}).id).first()[0]
    except Exception:
        return "refused"

with open(f"{folder}/lines.json", "w") as file:
    file.write("\n".join(texts) + "\n")
read = spark.read.schema("id string, bad string").option("columnNameOfCorruptRecord", "bad").json(f"{folder}/lines.json")
from_file = [row.id or "told" for row in read.collect()]
rows = spark.createDataFrame([(text,) for text in texts], "value string")
options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"}
parsed = rows.select(
    f.from_json("value", "id string, bad string", options).alias("json"),
    f.try_parse_json("value").cast("string").alias("variant"),
)
for text, row, line in zip(texts, parsed.collect(), from_file):
    permissive = "told" if row.json.bad is not None else row.json.id
    print(f"{text}: permissive {permissive}, failfast {failfast(text)}, variant {row.variant}, file {line}")
END_OF_PYTHON
"$dir/venv/bin/pip" list 2>/dev/null | grep pyspark
seen=$("$dir/venv/bin/python" "$dir/reads.py" "$dir" 2>/dev/null)
echo "$seen"
[ "$seen" = '{"id": "a"} {"id": "b"}: permissive a, failfast a, variant {"id":"a"}, file a
{"id": "a"}}: permissive a, failfast a, variant {"id":"a"}, file a
{"id": "a"} x: permissive a, failfast a, variant {"id":"a"}, file a
{"id": "a": permissive told, failfast refused, variant None, file told' ]
echo "behaviour: Spark ignores what follows the first JSON value of a text, in every mode"
