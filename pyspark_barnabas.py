"""The data source `barnabas` for Spark, which looks for modules named `pyspark_*`.

An error here would make every Python data source of a session fail. So this module imports nothing,
and has no `DefaultSource` where PySpark or a part of Barnabas is missing;
`python -c "import pyspark_barnabas; pyspark_barnabas.DefaultSource"` shows the reason.

PYTEST_DONT_REWRITE: `barnabas/testing/plugin.py` says why.
"""


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from barnabas.pipeline.spark.format import BarnabasDataSource
    except Exception as error:
        # Spark asks by hasattr(), which lets any other error through.
        mend = "; pip install 'barnabas[spark]'" if isinstance(error, ImportError) else ""
        raise AttributeError(
            f"the data source barnabas cannot be imported: {error}{mend}"
        ) from error
    return BarnabasDataSource
