"""The format `barnabas` of Spark's readers and writers.

Every Spark session with this package installed imports this module when it looks for data sources,
so all else is imported on use.
"""

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY: Final = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "any"}


class BarnabasDataSource(DataSource):
    """The data source `barnabas`; `barnabas.pipeline.register` makes it known to a session.

    Spark makes an instance for each read and write, in a process beside the driver, and sends it to
    others: it holds the options only.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns of the stock Kafka source."""
        from barnabas.pipeline.source.options import includes_headers
        from barnabas.pipeline.spark.source import columns

        return columns(headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        from barnabas.pipeline.spark.source import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        from barnabas.pipeline.spark.source import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from barnabas.pipeline.spark.sink import BatchWriter, Driver, plan_sink

        plan = plan_sink(self.options, schema, streaming=False, overwrite=overwrite)
        return BatchWriter(Driver(plan))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one batch of a stream."""
        from barnabas.pipeline.spark.sink import Driver, StreamWriter, plan_sink

        plan = plan_sink(self.options, schema, streaming=True, overwrite=overwrite)
        return StreamWriter(Driver(plan))


def is_known(spark: "SparkSession") -> bool:
    """Return whether a session finds the format, by its registration or by the module's name.

    Spark logs a warning about a format that is registered again.
    """
    try:
        # The columns are asked for, and no broker.
        spark.read.format(BarnabasDataSource.name()).options(**_ANY).load().schema  # noqa: B018
    except (PySparkException, Py4JError) as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        return False
    return True
