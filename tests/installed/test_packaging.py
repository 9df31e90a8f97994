"""The wheel, the sdist, a zip without links and the lowest versions: complete, and a broker runs.
Spark finds the data source in the wheel.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, ROOT
from tests.support.installation import (
    MODULES,
    PROJECT,
    Installation,
    build,
    install_from_index,
    succeed,
    tracked,
)
from tests.support.repository import links
from tests.support.zookeeper import chroot_of, shared_server

pytestmark = pytest.mark.timeout(300)


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, except the list of their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: archive.read(name) for name in names}


def test_wheel_is_complete_and_runs_a_broker(wheel: Path, tmp_path: Path) -> None:
    assert {name for name in contents(wheel) if name.endswith(".py")} == MODULES
    assert not [name for name in contents(wheel) if name.endswith(".png")]
    installation = Installation(tmp_path)
    installation.install(wheel)
    installation.check()


USE_IN_SPARK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.driver.host", "127.0.0.1").getOrCreate()
servers, directory = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
rows = spark.read.format("barnabas").options(**options).load()
print("rows", [bytes(row.value) for row in rows.collect()])

from barnabas.pipeline import register
register(spark)
print("again", spark.read.format("barnabas").options(**options).load().count())
"""


def test_job_is_packaged_the_same_by_the_wheel_and_by_the_sources(
    wheel: Path, tmp_path: Path
) -> None:
    installation = Installation(tmp_path)
    installation.install(wheel)
    job = tmp_path / "job.yaml"
    job.write_text("name: a\nsource: {topic: b}\nsink: {topic: c}\ncheckpoint: /d\n")
    for python, to in ((installation.python, "wheel.py"), (sys.executable, "sources.py")):
        command = (python, "-m", "barnabas", "pipeline", "package", job, "-o", to)
        told = succeed(*command, cwd=tmp_path)
        assert told.splitlines()[-1] == f"spark-submit --master MASTER {to}"
    assert (tmp_path / "wheel.py").read_bytes() == (tmp_path / "sources.py").read_bytes()


def test_spark_finds_the_data_source_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """An editable installation hides the module: a program there calls `register`."""
    installation = Installation(tmp_path, shared=False)
    installation.link(*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"])
    installation.install(wheel)
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"hello")
        assert producer.flush(DEADLINE) == 0
        printed = installation.run(USE_IN_SPARK, broker.bootstrap_servers, str(tmp_path))
    assert [line for line in printed.splitlines() if line.startswith(("rows", "again"))] == [
        "rows [b'hello']",
        "again 1",
    ]


def test_wheel_has_no_module_that_an_earlier_build_left(
    wheel: Path, sources: Path, tmp_path: Path
) -> None:
    stale = sources / "build" / "lib" / "barnabas" / "broker" / "deleted.py"
    assert stale.parent.exists()
    stale.write_text("")
    assert contents(build("wheel", sources, tmp_path / "dist")) == contents(wheel)


def test_sdist_is_complete_and_runs_a_broker(sdist: Path, tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.install(sdist)
    installation.check()


def test_sdist_has_the_modules_once_and_builds_the_same_wheel(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        assert all(member.isdir() or member.isfile() for member in archive)
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("barnabas-*")
    modules = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*.py")}
    assert modules - {"setup.py"} == MODULES
    assert contents(build("wheel", unpacked, tmp_path / "dist")) == contents(wheel)


def test_zip_whose_links_are_text_files_is_complete_and_runs_a_broker(tmp_path: Path) -> None:
    archive = tmp_path / "barnabas-main.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in tracked():
            file.write(ROOT / path, f"barnabas-main/{path}")
        for name, target in links().items():
            file.writestr(f"barnabas-main/{name}", target)
    installation = Installation(tmp_path)
    installation.install(archive)
    installation.check()


def lowest_versions(*requirements: str) -> list[str]:
    lowest = [re.sub(r">=([\d.]+).*", r"==\1", each) for each in requirements]
    assert all("==" in each for each in lowest)
    return lowest


def test_lowest_versions_of_the_dependencies_run_a_broker(wheel: Path, tmp_path: Path) -> None:
    """Skipped without a package index for the old versions."""
    extras = PROJECT["optional-dependencies"]
    installation = Installation(tmp_path, shared=False)
    lowest = lowest_versions(*PROJECT["dependencies"], *extras["re2"])
    install_from_index(installation, wheel, *lowest)
    installation.check()
    connect = shared_server().connect + chroot_of("lowest")
    cluster = {
        "zookeeper.connect": connect,
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    installation.check("of-a-cluster", *(f"--set={key}={value}" for key, value in cluster.items()))
    succeed(
        *(installation.python, "-c", "import re2; assert re2.fullmatch('a+', 'aa')"), cwd=tmp_path
    )


def find_python(version: str) -> Path:
    """Return an interpreter of a version, of the system or of pyenv; skip the test without one."""
    pyenv = Path.home() / ".pyenv" / "versions"
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")]
    ask = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
    for each in filter(None, found):
        # A shim of pyenv without a version behind it fails.
        told = subprocess.run([each, "-c", ask], capture_output=True, text=True, check=False)
        if told.stdout.strip() == version:
            return Path(each)
    pytest.skip(f"no Python {version}")


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_other_versions_of_python_run_a_broker(wheel: Path, tmp_path: Path, version: str) -> None:
    """Skipped without the interpreter, or without a package index for its dependencies."""
    installation = Installation(tmp_path, shared=False, python=find_python(version))
    install_from_index(installation, wheel)
    installation.check()


USE_WITHOUT_SPARK = """
from importlib import import_module
from pkgutil import walk_packages
import sys

import barnabas.pipeline, pyspark_barnabas

for module in walk_packages(barnabas.pipeline.__path__, "barnabas.pipeline."):
    if not module.name.startswith("barnabas.pipeline.spark"):
        import_module(module.name)
assert "pyspark" not in sys.modules and not hasattr(pyspark_barnabas, "DefaultSource")

import pyarrow as pa
from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns.decode import decode
from barnabas.pipeline.columns.encode import encode
from barnabas.pipeline.columns.partitioner import Partitioner
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.compression import Compression

values = pa.array([b"1", None, b"3"])
header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
headers = pa.array([None, [{"key": "a", "value": None}], []], header)
batches = list(encode(values, values, headers, pa.array([1, 2, 3]),
    compression=Compression.ZSTD, max_batch_bytes=1000))
data = memoryview(b"".join(each.data for each in batches))
fetched = FetchedBatches(data, list(iter_headers(data)), 0, 0, 0, 0)
(found,) = decode([fetched], "t", 0, 0, 3, headers=True, report=print)
assert found.column("key").to_pylist() == values.to_pylist()
assert found.column("headers").to_pylist() == [None, [{"key": "a", "value": None}], None]
assert len(Partitioner(5).choose(values, values)) == 3
"""


def test_lowest_versions_of_the_pipelines_extras_work(wheel: Path, tmp_path: Path) -> None:
    """PySpark is left out: `tests/run-spark` has its lowest version. Skipped without an index."""
    extras = PROJECT["optional-dependencies"]
    extra = [*extras["spark"], *extras["formats"]]
    installation = Installation(tmp_path, shared=False)
    others = [each for each in extra if not each.startswith("pyspark")]
    assert len(others) == len(extra) - 1
    install_from_index(installation, wheel, *lowest_versions(*others))
    installation.run(USE_WITHOUT_SPARK)


def test_the_lowest_pyspark_is_the_one_that_the_pipeline_is_tested_with() -> None:
    extra = PROJECT["optional-dependencies"]["spark"]
    (lowest,) = (re.sub(r".*>=([\d.]+),.*", r"\1", each) for each in extra if "pyspark" in each)
    assert f"tests/run-spark {lowest} " in (ROOT / "tests" / "run-spark").read_text()
