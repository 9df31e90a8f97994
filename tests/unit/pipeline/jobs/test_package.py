"""The archive of a job: what is in it, what is refused, and where its program does not run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import barnabas
from barnabas.pipeline.jobs.package import Package, check_package, plan_package, write_package
from barnabas.pipeline.jobs.reading import JobError, read_job

JOB = """\
name: orders
source: {topic: in}
tables:
  - {view: rows, format: parquet, path: /shared/rows}
  - view: users
    format: jdbc
    options: {url: "jdbc:x", dbtable: users, password: {env: NOT_SET_HERE}}
sink: {topic: out, codec: protobuf, schema: {file: schemas/out.proto}}
checkpoint: hdfs:///points
registry: {url: "https://registry", basic.auth.user.info: {file: /run/secrets/login}}
security:
  security.protocol: SASL_SSL
  ssl.ca.location: ca.pem
  sasl.password: {env: NOT_SET_HERE}
spark: {spark.master: "local[2]", spark.sql.shuffle.partitions: 2}
"""
SMALL = ("__main__.py", "package.json", "job/", "packages/barnabas/pipeline/")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "out.proto").write_text("syntax")
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def planned(path: Path) -> Package:
    file = read_job(path, packs=True)
    check_package(file)
    return plan_package(file)


def small(package: Package) -> Package:
    """Return a package with few files, so that it is written at once."""
    files = {name: each for name, each in package.files.items() if name.startswith(SMALL)}
    return package._replace(files=files)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("{topic: in, key: {codec: avro}}", "{topic: out}"),
        ("{topic: in}", "{topic: out, key: _key, key_codec: avro}"),
    ],
)
def test_schemas_of_keys_alone_need_their_packages_too(
    tmp_path: Path, source: str, sink: str
) -> None:
    """Only the codecs of values were asked: such a job found no fastavro on the cluster."""
    path = tmp_path / "job.yaml"
    registry = 'registry: {url: "https://registry"}'
    path.write_text(f"name: a\nsource: {source}\nsink: {sink}\ncheckpoint: /d\n{registry}\n")
    assert "fastavro" in planned(path).versions


def test_archive_has_job_schemas_program_and_packages_and_no_spark(path: Path) -> None:
    package = planned(path)
    assert package.job_files == ["job.yaml", "schemas/out.proto"]
    sources = Path(barnabas.__file__).parent
    ours = {f"packages/barnabas/{each.relative_to(sources)}" for each in sources.rglob("*.py")}
    files = package.files.keys()
    assert files >= {
        *ours,
        *("__main__.py", "package.json", "packages/pyspark_barnabas.py"),
        *("job/job.yaml", "job/schemas/out.proto"),
        *("packages/yaml/__init__.py", "packages/pyarrow/__init__.py"),
    }
    assert [each for each in files if each.startswith("packages/numpy.libs/")]
    assert [each for each in files if "/pyspark/" in each or "/py4j/" in each] == []
    assert [each for each in files if "__pycache__" in each or each.endswith("/RECORD")] == []
    assert [each for each in files if each.startswith(("packages/pytest", "packages/.."))] == []
    assert package.versions["barnabas"] == barnabas.__version__
    assert {"crc32c", "pydantic_core", "fastavro"} <= package.versions.keys()
    assert {"pyspark", "py4j"}.isdisjoint(package.versions)


def test_same_content_has_the_same_bytes(path: Path, tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        write_package(small(planned(path)), tmp_path / name)
        os.utime(path, (0, 0))
    assert (tmp_path / "one.py").read_bytes() == (tmp_path / "two.py").read_bytes()
    path.write_text(f"{JOB}lineage: true\n")
    write_package(small(planned(path)), tmp_path / "other.py")
    assert (tmp_path / "one.py").read_bytes() != (tmp_path / "other.py").read_bytes()
    with ZipFile(tmp_path / "one.py") as archive:
        assert archive.testzip() is None
        assert archive.read("job/job.yaml").decode() == JOB


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("hdfs:///points", "points", "9:1: checkpoint: on a cluster 'points' is another folder"),
        ("/shared/rows", "rows.parquet", "4:35: path: rows.parquet is not packed; give a URI"),
        (
            "sink: {topic: out, codec: protobuf, schema: {file: schemas/out.proto}}",
            "sinks: [{topic: out}, {path: archive, format: csv}]",
            "8:24: path: on a cluster 'archive' is another folder for each host; give a URI, or",
        ),
        ("{env: NOT_SET_HERE}}\nsink", "x}\nsink", "7:5: password: a secret does not belong into"),
        ("{env: NOT_SET_HERE}\nspark", "x\nspark", "14:3: sasl.password: a secret does not"),
        ("/run/secrets/login", "login", "10:37: basic.auth.user.info: file login is not packed;"),
        ("schemas/out.proto", "none.proto", "8:37: schema: file none.proto cannot be read"),
        ("schemas/out.proto", "../a.proto", "8:37: schema: file ../a.proto has to be below the"),
        ("sasl.password", "sasl.pasword", "14:3: unknown key 'sasl.pasword'; did you mean"),
        ("topic: in", "topik: in", "2:10: unknown key 'topik'; did you mean 'topic'?"),
        (
            "spark.sql.shuffle.partitions",
            "spark.hadoop.fs.s3a.secret.key",
            "15:35: spark.hadoop.fs.s3a.secret.key: a secret is not packed; give it to",
        ),
        (
            "spark.sql.shuffle.partitions",
            "spark.archives",
            "15:35: spark.archives: the program adds to it; give it to spark-submit",
        ),
    ],
)
def test_what_a_cluster_does_not_have_is_refused_with_line_and_column(
    path: Path, old: str, new: str, error: str
) -> None:
    assert old in JOB
    path.write_text(JOB.replace(old, new))
    with pytest.raises(JobError) as raised:
        planned(path)
    (line,) = str(raised.value).splitlines()
    assert line.removeprefix(f"{path}:").startswith(error)


def ended(archive: Path, **environment: str) -> str:
    """Return the line with which the program of an archive ends at once."""
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(archive)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_program_says_where_it_does_not_run(path: Path, tmp_path: Path) -> None:
    package = small(planned(path))
    archive = tmp_path / "orders.py"
    write_package(package, archive)
    assert ended(archive) == "orders.py is a program for spark-submit: spark-submit orders.py"
    about = json.loads(bytes(package.files["package.json"]))
    other = json.dumps({**about, "python": "3.99"}).encode()
    write_package(package._replace(files={**package.files, "package.json": other}), archive)
    line = ended(archive, PYSPARK_GATEWAY_PORT="1")
    assert line.startswith(f"orders.py was packaged for Python 3.99 on {package.platform}, and ")
    assert "set PYSPARK_PYTHON to such a Python" in line
