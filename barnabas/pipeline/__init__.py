"""The data pipeline on Spark: a source and an exactly-once sink, and jobs from a file."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REDACTION: Final = "spark.sql.redaction.options.regex"
_SECRET: Final = r"(?i)^kafka[.](sasl|ssl)[.]"


def register(spark: "SparkSession") -> None:
    """Make `format("barnabas")` known to a session, for reads and writes.

    The session shows no option of TLS and SASL in its plans from now on: by default Spark hides
    those whose name or value has a word such as `password`, and so shows a private key.

    Raises NoBarnabas, whose text says what to set, if the Python of Spark's processes beside the
    driver, or of a Spark Connect server, lacks Barnabas.
    """
    from barnabas.pipeline.spark.format import BarnabasDataSource, is_known
    from barnabas.pipeline.spark.pythons import require_barnabas

    require_barnabas(spark)
    hidden = spark.conf.get(_REDACTION) or ""
    if _SECRET not in hidden:
        spark.conf.set(_REDACTION, f"{hidden}|{_SECRET}" if hidden else _SECRET)
    if not is_known(spark):
        spark.dataSource.register(BarnabasDataSource)
