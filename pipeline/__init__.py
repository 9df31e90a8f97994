"""The data pipeline on Spark: a source and an exactly-once sink, and jobs from a file."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("barnabas")` known to a session, for reads and writes."""
    from barnabas.pipeline.spark.format import BarnabasDataSource

    spark.dataSource.register(BarnabasDataSource)
