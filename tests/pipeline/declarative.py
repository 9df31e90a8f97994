"""A declarative pipeline of Spark: a flow from our source to our sink, run by `spark-pipelines`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark

from tests.pipeline.bench import MASTER, Stream
from tests.pipeline.drivers import kill_session
from tests.support.spark import ROOT, SETTINGS

RUN_WITHIN_S = 400.0
_SPEC = """\
name: {name}
storage: file://{folder}/storage
libraries: [{{glob: {{include: flows.py}}}}]
"""
# Spark finds it by its name: a run with a data source that its session has registered ends with
# UNKNOWN_RESPONSE and exit code 1 (4.3.0), whatever became of the run.
_MODULE = "from tests.pipeline.faulty_sink import FaultySink as DefaultSource\n"
_FLOWS = """\
from pyspark import pipelines as dp

dp.create_sink("out", "faulty", {sink!r})


@dp.append_flow(target="out", name={name!r})
def copy():
    records = spark.readStream.format("barnabas").options(**{source!r}).load()
    return records.selectExpr("key", "value")
"""


class DeclarativePipeline:
    """The pipeline of a stream whose input is a topic; every run is a process."""

    def __init__(self, stream: Stream) -> None:
        self.folder = stream.folder / "pipeline"
        self.folder.mkdir()
        servers = {"kafka.bootstrap.servers": stream.servers}
        sink = {
            **servers,
            "topic": stream.topic,
            "sinkId": stream.sink_id,
            "test.folder": str(stream.folder),
            "test.driver": "pipeline",
            "test.processes": "",
        }
        source = {
            **servers,
            "subscribe": str(stream.records),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
        }
        name = stream.name.replace("-", "_")
        (self.folder / "spark-pipeline.yml").write_text(_SPEC.format(name=name, folder=self.folder))
        (self.folder / "pyspark_faulty.py").write_text(_MODULE)
        (self.folder / "flows.py").write_text(_FLOWS.format(name=name, sink=sink, source=source))

    def run(self, *arguments: str, is_over: Callable[[], bool] = lambda: False) -> tuple[int, str]:
        """Run the pipeline to its end, or kill it once it `is_over`: a client waits for minutes for
        a server that was killed. Return the exit code and what it has printed."""
        given = ["--remote", MASTER]
        given += [part for pair in SETTINGS.items() for part in ("--conf", "=".join(pair))]
        home = Path(pyspark.__file__).parent
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin/spark-pipelines"), *given, "run", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join((str(self.folder), str(ROOT))),
                },
                start_new_session=True,
            )
        end = time.monotonic() + RUN_WITHIN_S
        while process.poll() is None and not is_over() and time.monotonic() < end:
            time.sleep(0.1)
        kill_session(process.pid)
        return process.wait(), (self.folder / "log").read_text(errors="replace")
