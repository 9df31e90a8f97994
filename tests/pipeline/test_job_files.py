"""Files beside topics: a driver that dies between them, and what is in both afterwards."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barnabas.testing import Broker
from tests.support.command_line import environment
from tests.support.jobs import consume, create, finished, produce

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(600)]

JOB = """\
name: archive
source:
  topic: numbers
  codec: json
  schema: {n: int not null}
  options: {startingOffsets: earliest, maxOffsetsPerTrigger: 30}
steps:
  - view: marked
    sql: SELECT n, n % 2 = 0 AS even FROM source
sinks:
  - {topic: copies}
  - {path: all, format: parquet}
  - {path: even, format: json, where: even}
bad_records: broken
trigger: available-now
checkpoint: points
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""

KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
from barnabas.pipeline.jobs.reading import read_job
from barnabas.pipeline.monitor.progress import Monitor
from barnabas.pipeline.spark.batch_output import BatchOutput
from barnabas.pipeline.spark.job import run_job

name, when = sys.argv[2:]
write = BatchOutput._write_files

def write_and_die(self, sink, rows, folder):
    if sink.path == name and when == "before":
        os.killpg(0, signal.SIGKILL)
    write(self, sink, rows, folder)
    if sink.path == name:
        # As a driver leaves it that dies while it writes.
        written = Path(self._path(sink), folder)
        (written / "_SUCCESS").unlink()
        next(written.glob("part-*")).unlink()
        os.killpg(0, signal.SIGKILL)

BatchOutput._write_files = write_and_die
file = read_job(Path(sys.argv[1]))
file.job = file.job.model_copy(update={"bootstrap": os.environ["BARNABAS_BOOTSTRAP_SERVER"]})
run_job(file, Monitor("archive", "archive", time.time()), lambda _: None, threading.Event())
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def die(servers: str, job: Path, name: str, when: str) -> None:
    """Run the job with a driver that dies before or during the writing of some files."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(job), name, when],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(BARNABAS_BOOTSTRAP_SERVER=servers),
        start_new_session=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def in_topic(servers: str) -> Counter[int]:
    return Counter(json.loads(each.value or b"")["n"] for each in consume(servers, "copies"))


def in_files(folder: Path) -> Counter[int]:
    """Return the numbers in the complete folders of batches."""
    parts = [
        part for done in folder.glob("query=*/batch=*/_SUCCESS") for part in done.parent.glob("p*")
    ]
    found: Counter[int] = Counter()
    for part in parts:
        if part.suffix == ".parquet":
            found.update(pq.read_table(part, partitioning=None).column("n").to_pylist())
        else:
            found.update(json.loads(line)["n"] for line in part.read_text().splitlines())
    return found


def test_rows_are_once_in_topic_and_files_when_drivers_die_between_them(
    servers: str, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    create(servers, "numbers", "copies", "broken")
    produce(servers, "numbers", [b'{"n": %d}' % number for number in range(80)])
    die(servers, job, "all", "before")
    first = in_topic(servers)
    assert 0 < first.total() < 80
    assert not in_files(tmp_path / "all")

    die(servers, job, "even", "during")
    assert in_topic(servers) == in_files(tmp_path / "all") == first
    assert not in_files(tmp_path / "even")

    code, _, errors = finished(servers, "run", str(job), "--json")
    assert code == 0, errors
    assert in_topic(servers) == Counter(range(80))
    assert in_files(tmp_path / "all") == Counter(range(80))
    assert in_files(tmp_path / "even") == Counter(range(0, 80, 2))
    assert len(list((tmp_path / "all").glob("query=*"))) == 1


def test_a_folder_that_cannot_be_made_is_told_before_the_start(
    servers: str, tmp_path: Path
) -> None:
    create(servers, "numbers-2", "copies-2", "broken-2")
    (tmp_path / "all").write_text("a file\n")
    text = JOB
    for name in ("numbers", "copies", "broken"):
        text = text.replace(f": {name}", f": {name}-2")
    (tmp_path / "job.yaml").write_text(text)
    code, _, errors = finished(servers, "run", str(tmp_path / "job.yaml"))
    assert code != 0
    assert "job.yaml:12:6: no files can be written here: " in errors
    assert errors.count("\n") == 1
