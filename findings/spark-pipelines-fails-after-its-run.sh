#!/usr/bin/env bash
# Seen: `spark-pipelines run` whose definitions register a data source in Python ends with UNKNOWN_RESPONSE, a traceback
#   and exit code 1, after "Run is COMPLETED" and with all rows in the table. The same source, found by the name of its
#   module (pyspark_*), ends with 0.
# Versions: pyspark 4.3.0.
# Why a guess is wrong: an exit code of a program that runs pipelines seems to be that of the run. A scheduler that
#   starts a failed run again does so for ever.
# What follows: put the data source into a module pyspark_NAME with a class DefaultSource on the path of Spark's Python,
#   or judge the run by its last event.
# Source: a source that a session registers has the session's Python accumulator, whose values a server sends at the end
#   of a command as an observed metric; SparkConnectClient.execute_command_as_iterator raises for all but a dict.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 grpcio==1.85.3 grpcio-status==1.85.3 \
    googleapis-common-protos==1.76.0 protobuf==7.36.2 zstandard==0.25.0 pyyaml==6.0.4

mkdir "$dir/modules" "$dir/found" "$dir/registered"
cat >"$dir/modules/pyspark_numbers.py" <<'END_OF_PYTHON'
from pyspark.sql.datasource import DataSource, DataSourceReader

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number int"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def read(self, partition):
        yield from ((number,) for number in range(3))
END_OF_PYTHON
cat >"$dir/found/flows.py" <<'END_OF_PYTHON'
from pyspark import pipelines as dp

@dp.materialized_view
def numbers():
    return spark.read.format("numbers").load()
END_OF_PYTHON
{
    echo "from pyspark_numbers import DefaultSource"
    echo "spark.dataSource.register(DefaultSource)"
    cat "$dir/found/flows.py"
} >"$dir/registered/flows.py"

"$dir/venv/bin/pip" list 2>/dev/null | grep -E "pyspark|pandas|grpcio|protobuf"
export PYSPARK_PYTHON="$dir/venv/bin/python" PYTHONPATH="$dir/modules" SPARK_LOCAL_IP=127.0.0.1
for kind in found registered; do
    cd "$dir/$kind"
    printf 'name: %s\nstorage: file://%s/storage\nlibraries: [{glob: {include: flows.py}}]\n' "$kind" "$PWD" >spark-pipeline.yml
    code=0
    "$dir/venv/bin/spark-pipelines" run >log 2>&1 || code=$?
    completed=$(grep -c "Run is COMPLETED" log || true)
    unknown=$(grep -c "PySparkValueError: .UNKNOWN_RESPONSE" log || true)
    files=$(find . -name '*.parquet' | wc -l)
    echo "$kind: exit code $code, runs completed $completed, unknown responses $unknown, files of rows $((files > 0))" | tee -a "$dir/seen"
done
[ "$(cat "$dir/seen")" = "found: exit code 0, runs completed 1, unknown responses 0, files of rows 1
registered: exit code 1, runs completed 1, unknown responses 1, files of rows 1" ]
echo "behaviour: spark-pipelines fails after a completed run if its definitions register a data source in Python"
