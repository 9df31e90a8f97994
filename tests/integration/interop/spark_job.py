"""A streaming query of Spark as a program: from one topic to another, by the stock connector.

    python spark_job.py SERVERS INPUT OUTPUT CHECKPOINT

It prints "started", and ends its query on SIGTERM. Spark fetches the connector from Maven Central.
"""

import signal
import sys
import threading

from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


def main() -> None:
    servers, source, sink, checkpoint = sys.argv[1:]
    session = (
        SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", f"{checkpoint}-warehouse")
        .getOrCreate()
    )
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        # Kafka's AdminClient retries a broker that has crashed until this timeout.
        .option("kafka.default.api.timeout.ms", "10000")
        .option("kafka.request.timeout.ms", "5000")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        records.selectExpr("key", "concat(cast(value as string), ' seen') as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    # A handler must not call the JVM, because a call of its main thread may be running.
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    print("started", flush=True)
    while not query.awaitTermination(1):
        if enough.is_set():
            query.stop()
    session.stop()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
