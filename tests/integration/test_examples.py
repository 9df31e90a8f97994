"""The examples run on Barnabas and on Apache Kafka, and print what their first lines say."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from barnabas.testing import Broker
from tests.support import go_programs
from tests.support.command_line import ROOT, environment

pytest_plugins = ["pytester"]

EXAMPLES = ROOT / "examples"
IN_GO = EXAMPLES / "go" / "main.go"
PROGRAMS = [
    *sorted(path for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_")),
    IN_GO,
]
HOLD_COMMIT = {
    EXAMPLES / "go" / "hold_commit" / "main.go",
    EXAMPLES / "java" / "HoldCommit.java",
    EXAMPLES / "javascript" / "hold_commit.js",
}
"""Examples of faults, which `test_faults_languages.py` runs."""
NEED_KIP_939 = {"spark_totals", "two_phase"}
"""Examples that Apache Kafka cannot run yet: it does not keep prepared transactions."""
ON_KAFKA = pytest.mark.xdist_group("client-on-kafka")
CASES = [
    *(pytest.param("barnabas", each, id=each.stem) for each in PROGRAMS),
    *(
        pytest.param("kafka", each, id=f"{each.stem}-on-kafka", marks=ON_KAFKA)
        for each in PROGRAMS
        if each.stem not in NEED_KIP_939
    ),
]
CLIENTS = {
    "aiokafka": "from aiokafka import",
    "barnabas.client": "from barnabas.client.cluster import",
    "barnabas.testing": "(barnabas_broker)",
    "confluent-kafka": "from confluent_kafka import",
    "franz-go": '"github.com/twmb/franz-go/pkg/kgo"',
    "kafka-clients": "import org.apache.kafka.clients.producer.KafkaProducer;",
    "kafka-python": "from kafka import",
    "kafkajs": 'require("kafkajs")',
    "the data source `barnabas`": "import barnabas.pipeline\n",
}
"""The text that shows which client an example uses, by the client's name in the README."""


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_for_clients")
        return
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker.bootstrap_servers


def announced(program: Path) -> str:
    """Return the output that the first lines of an example announce."""
    source = program.read_text()
    if program == IN_GO:
        comment = source.partition("\npackage ")[0]
        text = re.sub(r"^// ?", "", comment, flags=re.MULTILINE)
    else:
        text = ast.get_docstring(ast.parse(source)) or ""
    _, output = re.split(r"\bit\s+prints:\n\n", text)
    return dedent(output) + "\n"


def command(program: Path) -> list[str]:
    """Return the command that runs an example; skip the test if it cannot be built here."""
    if program != IN_GO:
        return [sys.executable, str(program)]
    if reason := go_programs.why_not():
        pytest.skip(reason)
    return [str(go_programs.built(program.parent, "example-go"))]


@pytest.mark.parametrize(("servers", "program"), CASES, indirect=["servers"])
def test_example_prints_what_it_announces(program: Path, servers: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*command(program), servers],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1"),
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, announced(program)), done.stderr


def test_tests_of_the_example_application_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shipping=(EXAMPLES / "test_shipping.py").read_text())
    pytester.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=3)


def test_readme_lists_every_example_with_its_clients() -> None:
    text = (EXAMPLES / "README.md").read_text()
    rows = re.findall(r"^\| \[([\w/.]+)\]\(\1\) \| .+ \| (.+) \|$", text, re.MULTILINE)
    files = {*EXAMPLES.glob("*.py"), IN_GO, *HOLD_COMMIT}
    assert {name for name, _ in rows} == {str(path.relative_to(EXAMPLES)) for path in files}
    for name, clients in rows:
        source = (EXAMPLES / name).read_text()
        assert all(CLIENTS[each] in source for each in clients.split(", ")), name
    libraries = {each for _, clients in rows for each in clients.split(", ")}
    assert libraries == CLIENTS.keys()
