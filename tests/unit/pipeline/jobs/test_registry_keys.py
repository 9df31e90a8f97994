"""The keys of a job about a schema registry: where secrets are, and what does not fit together."""

from pathlib import Path

import pytest

from barnabas.pipeline.jobs.reading import JobError, JobFile
from barnabas.registry.client import Reference

SECRET = "alice:s3cret-zq7"
JOB = """\
name: orders
registry:
  url: https://localhost:1
  basic.auth.user.info: {file: login.txt}
source: {topic: in, codec: avro}
sink:
  topic: out
  codec: protobuf
  schema: {file: out.proto}
checkpoint: points
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "login.txt").write_text(f"{SECRET}\n")
    (tmp_path / "out.proto").write_text("syntax")
    return tmp_path / "job.yaml"


def test_secrets_and_schemas_stand_in_files_beside_the_job(path: Path):
    job = JobFile(path, JOB).job
    assert job.registry["basic.auth.user.info"] == SECRET
    assert job.registry_settings.authorization is not None
    assert job.sink.schema_text == "syntax"
    assert SECRET not in f"{job!r} {job.registry_settings!r}"


def test_an_address_alone_is_a_registry(path: Path):
    start, end = JOB.index("registry:"), JOB.index("source:")
    job = JobFile(path, f"{JOB[:start]}registry: http://localhost:1\n{JOB[end:]}").job
    assert job.registry_settings.urls == ("http://localhost:1",)


def test_a_schema_may_stand_in_the_job_with_its_references(path: Path):
    text = "schema: 'text'\n  references: [{name: a.proto, subject: a, version: 1}]"
    job = JobFile(path, JOB.replace("schema: {file: out.proto}", text)).job
    assert job.sink.schema_text == "text"
    assert job.sink.references == [Reference("a.proto", "a", 1)]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("{file: login.txt}", SECRET, "4:3: basic.auth.user.info: a secret does not belong into"),
        ("login.txt", "no.txt", "4:3: basic.auth.user.info: file no.txt cannot be read"),
        ("url: https", "ulr: https", "3:3: unknown key 'ulr'; did you mean 'url'?"),
        ("https://", "", "2:1: registry: url must be http://HOST:PORT"),
        (JOB[JOB.index("registry:") : JOB.index("source:")], "", "2:21: codec avro needs the key"),
        ("codec: avro", "codec: avrp", "5:21: codec: 'avrp' is not possible; did you mean 'avro'?"),
        ("codec: avro", "codec: json, subject: a", "5:1: "),
        ("codec: avro", "codec: string, version: 1", "5:1: 'version' needs one of the codecs avro"),
        (
            "codec: avro",
            "codec: avro, version: 0",
            "5:34: version: 0 is not possible; give latest or",
        ),
        ("codec: avro", "codec: avro, naming: recrd", "5:34: naming: 'recrd' is not possible; did"),
        ("codec: avro", "codec: avro, schema: {a: int}", "5:1: 'schema' and 'json_options' need"),
        ("out.proto", "no.proto", "9:3: schema: file no.proto cannot be read"),
        ("  schema: {file: out.proto}\n", "", "6:1: codec protobuf needs the key 'schema', or"),
        ("{file: out.proto}", "5", "9:3: schema must be {file: PATH}, or the text of a schema"),
        ("codec: protobuf", "codec: json", "6:1: 'schema' needs one of the codecs"),
        ("out.proto}", "out.proto}\n  register: false", "6:1: with 'register: false' the registry"),
        ("out.proto}", "out.proto}\n  version: 1", "6:1: 'version' needs 'register: false'"),
        ("out.proto}", "out.proto}\n  references: [a]", "10:16: a reference needs name, subject"),
    ],
)
def test_a_mistake_is_told_at_its_place(path: Path, old: str, new: str, error: str):
    assert old in JOB
    with pytest.raises(JobError) as raised:
        JobFile(path, JOB.replace(old, new))
    assert str(raised.value).startswith(f"{path}:{error}")
    assert "zq7" not in str(raised.value)
