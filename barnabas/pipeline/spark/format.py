"""The format `barnabas` of Spark's readers and writers.

Every Spark session with this package installed imports this module when it looks for data sources,
so all else is imported on use.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


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
