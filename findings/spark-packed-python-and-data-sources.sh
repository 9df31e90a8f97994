#!/usr/bin/env bash
# Seen: with a packed environment (--archives env.tar.gz#env, PYSPARK_PYTHON=./env/bin/python) in client mode, a UDF runs
#   in it, and a data source of Python ends with "Cannot run program ./env/bin/python": Spark plans it in a Python process
#   beside the driver, which has the same path as those of executors, and begins in the folder of spark-submit.
# Versions: pyspark 4.3.0, venv-pack 0.2.0.
# Why a guess is wrong: Spark unpacks the archive on the driver too, elsewhere, and PYSPARK_DRIVER_PYTHON seems to name
#   the Python of all processes there; it is for the program alone. The same line works with UDFs.
# What follows: unpack the archive under its name where spark-submit is started too; or leave the Python as it is, and
#   let spark.executorEnv.PYTHONPATH name the unpacked folders of both, because processes beside the driver have it too.
# Source: "Python Package Management" of PySpark's documentation, which packs environments for UDFs; PythonFunction and
#   PythonPlannerRunner in Spark's sources.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1
python3 -m venv "$dir/packed"
"$dir/packed/bin/pip" install -q pyarrow==26.0.1 venv-pack==0.2.0 setuptools==80.9.0
"$dir/packed/bin/venv-pack" -q -p "$dir/packed" -o "$dir/env.tar.gz"

cat >"$dir/program.py" <<'END'
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.functions import udf

class Rows(DataSource):
    @classmethod
    def name(cls):
        return "rows"
    def schema(self):
        return "python string, variable string"
    def reader(self, schema):
        import os
        return Reader(os.environ.get("SEEN", "no"))

class Reader(DataSourceReader):
    def __init__(self, variable):
        self.variable = variable
    def read(self, partition):
        import sys
        yield sys.prefix[-4:], self.variable

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
prefix = udf(lambda _: __import__("sys").prefix[-4:])
print("a UDF runs in", spark.range(1).select(prefix("id")).first()[0])
spark.dataSource.register(Rows)
try:
    python, variable = spark.read.format("rows").load().first()
    print("a data source runs in", python, "and beside the driver the executors' variable is", variable)
except Exception as error:
    line = next(each for each in str(error).splitlines() if "Cannot run program" in each)
    print("a data source:", line[line.index("Cannot run") :].partition('":')[0] + '"')
END
run() {
    (cd "$1" && SPARK_HOME=$("$dir/venv/bin/python" -c "import pyspark; print(pyspark.__path__[0])") \
        PYSPARK_DRIVER_PYTHON="$dir/venv/bin/python" PYSPARK_PYTHON=./env/bin/python \
        "$dir/venv/bin/spark-submit" --master "local-cluster[1,1,1024]" --archives "$dir/env.tar.gz#env" \
        --conf spark.driver.host=127.0.0.1 --conf spark.executorEnv.SEEN=yes \
        --conf spark.sql.execution.pythonUDF.arrow.enabled=false "$dir/program.py" 2>"$dir/log")
}
"$dir/venv/bin/pip" list 2>/dev/null | grep -i "pyspark"
mkdir -p "$dir/here" "$dir/there/env"
tar -xzf "$dir/env.tar.gz" -C "$dir/there/env"
seen=$(run "$dir/here"; echo "with the archive unpacked where spark-submit is started:"; run "$dir/there")
echo "$seen"
[ "$seen" = 'a UDF runs in /env
a data source: Cannot run program "./env/bin/python"
with the archive unpacked where spark-submit is started:
a UDF runs in /env
a data source runs in /env and beside the driver the executors'"'"' variable is yes' ]
echo "behaviour: the Python of executors is also that of the processes beside the driver, in the folder of spark-submit"
