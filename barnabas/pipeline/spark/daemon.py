"""PySpark's daemon, with the modules of source and sink imported before it forks workers.

Spark starts one daemon for each kind of worker. A query or a task that finds no idle worker gets a
new fork, which would import PySpark, Arrow and Barnabas again. The Spark setting
`spark.python.daemon.module=barnabas.pipeline.spark.daemon` puts this module in place of PySpark's.
"""

import gc
import importlib
import sys

from pyspark.daemon import manager

if __name__ == "__main__":
    for module in (sys.argv[1], "barnabas.pipeline.spark.source", "barnabas.pipeline.spark.sink"):
        importlib.import_module(module)
    # A collection of a worker does not look at these objects, and does not copy their pages.
    gc.collect()
    gc.freeze()
    manager()
