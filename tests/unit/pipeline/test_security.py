"""Security options of source, sink and jobs: taken, checked, and never shown."""

import pickle
from pathlib import Path

import pytest

from barnabas.client.security import KEYS, SECRETS
from barnabas.config.key import ConfigError
from barnabas.pipeline.jobs.reading import JobError, JobFile
from barnabas.pipeline.security import Security, split_security
from barnabas.pipeline.sink.options import parse_options
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.spark.job_options import sink_options, source_options

SECRET = "squirrel-in-the-attic"
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": SECRET,
}
KEYS_OF_LOGIN = {name.removeprefix("kafka."): value for name, value in LOGIN.items()}


def test_source_and_sink_keep_the_keys_of_a_client_and_never_show_them():
    servers = {"kafka.bootstrap.servers": "a:1"}
    source = read_options({**servers, "subscribe": "t", **LOGIN}, stream=True).fetching
    sink = parse_options({**servers, "sinkid": "s", **LOGIN}, streaming=True)
    for options in (source, sink, pickle.loads(pickle.dumps(source))):
        assert options.security.keys == KEYS_OF_LOGIN
        assert SECRET not in f"{options!r} {options}"
        assert "Security(SASL_PLAINTEXT)" in repr(options)


def test_equal_keys_are_one_cluster():
    assert Security(KEYS_OF_LOGIN) == Security(dict(reversed(KEYS_OF_LOGIN.items())))
    assert hash(Security(KEYS_OF_LOGIN)) == hash(Security(dict(KEYS_OF_LOGIN)))
    assert Security(KEYS_OF_LOGIN) != Security({})


def test_names_in_any_case_are_taken_and_others_are_left():
    security, rest = split_security({"KAFKA.Security.Protocol": "PLAINTEXT", "Topic": "t"})
    assert security.keys == {"security.protocol": "PLAINTEXT"}
    assert rest == {"Topic": "t"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.sasl.password": SECRET}, "has no effect without kafka.security.protocol: set"),
        ({**LOGIN, "kafka.security.protocol": "TLS"}, "String must be one of: PLAINTEXT, SSL"),
        ({**LOGIN, "kafka.sasl.paswort": SECRET}, "kafka.sasl.paswort is unknown: remove it"),
        (
            {**LOGIN, "kafka.sasl.login.callback.handler.class": "x"},
            "classes of Java cannot be loaded",
        ),
        ({**LOGIN, "kafka.sasl.mechanism": "GSSAPI"}, "Supported are PLAIN, SCRAM-SHA-256"),
    ],
)
def test_bad_options_are_refused_without_their_values(options: dict[str, str], text: str):
    with pytest.raises(ConfigError) as caught:
        split_security(options)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_no_error_of_a_secret_shows_it(name: str):
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        keys = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.truststore.type": "PEM",
            f"kafka.{name}": f"-----BEGIN {SECRET}",
        }
        with pytest.raises(ConfigError) as caught:
            split_security(keys)
        assert SECRET not in str(caught.value)


# -- jobs --------------------------------------------------------------------------------------

JOB = """\
name: j
source: {topic: in}
sink: {topic: out, codec: binary}
checkpoint: points
security:
  security.protocol: SASL_PLAINTEXT
  sasl.mechanism: PLAIN
  sasl.username: {env: JOB_USER}
  sasl.password: {file: secret.txt}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n")
    monkeypatch.setenv("JOB_USER", "alice")
    return tmp_path / "job.yaml"


def test_job_has_its_secrets_in_files_and_variables(job: Path):
    file = JobFile(job, JOB)
    for options in (source_options(file.job, *file.job.inputs[0]), sink_options(file.job)):
        assert {name: options[name] for name in LOGIN} == LOGIN
    assert SECRET not in f"{file.job!r}"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("{file: secret.txt}", SECRET, "9:3: sasl.password: a secret does not belong into"),
        ("{file: secret.txt}", "12345", "9:3: sasl.password: a secret does not belong into"),
        ("{file: secret.txt}", "{file: [1]}", "9:3: sasl.password: a secret does not belong into"),
        ("secret.txt", "other.txt", "9:3: sasl.password: file other.txt cannot be read"),
        ("JOB_USER", "JOBS_USER", "8:3: sasl.username: set the environment variable JOBS_USER"),
        ("sasl.username:", "sasl.user:", "8:3: unknown key 'sasl.user'; did you mean"),
        ("mechanism: PLAIN", "mechanism: GSSAPI", "5:1: security: Invalid value GSSAPI"),
        ("{env: JOB_USER}", "[1]", "8:3: sasl.username takes text, {file: PATH}"),
        (JOB[JOB.index("security:") :], "security: 5", "5:1: security must be a mapping"),
        (
            "{topic: in}",
            "{topic: in, options: {kafka.SASL.mechanism: PLAIN}}",
            "2:31: option 'kafka.SASL.mechanism' is set by security; remove it",
        ),
    ],
)
def test_mistake_is_told_at_its_place(job: Path, old: str, new: str, error: str):
    assert old in JOB
    with pytest.raises(JobError) as raised:
        JobFile(job, JOB.replace(old, new))
    assert str(raised.value).startswith(f"{job}:{error}")
    assert SECRET not in str(raised.value)
    assert "12345" not in str(raised.value)


def test_secrets_are_keys_of_a_client():
    assert SECRETS < KEYS
    assert {"sasl.jaas.config", "sasl.password", "ssl.keystore.key", "ssl.key.password"} < SECRETS
