"""A test that holds EndTxn: in three languages over HTTP, and with the levers of Python."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import confluent_kafka
import pytest

from barnabas.testing import Cluster
from tests.integration.one_request import in_thread
from tests.support import go_programs, node_programs
from tests.support.command_line import ROOT, environment
from tests.support.faults import Faults, served
from tests.support.kafka.jars import Unavailable, classpath

DEADLINE = 100.0
EXAMPLES = ROOT / "examples"
IN_GO = EXAMPLES / "go" / "hold_commit" / "main.go"
IN_JAVA = EXAMPLES / "java" / "HoldCommit.java"
IN_JAVASCRIPT = EXAMPLES / "javascript" / "hold_commit.js"
EXPECTED = "held 1 EndTxn, committed: false\nreleased, committed: true\nread: paid\n"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Faults]]:
    data = tmp_path_factory.mktemp("data")
    place = ("-l", "127.0.0.1:0", "-d", str(data))
    few = ("offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3")
    sets = [word for each in few for word in ("--set", each)]
    with served("serve", *place, *sets) as (_, servers, found):
        yield servers, found


def in_go() -> list[str]:
    if reason := go_programs.why_not():
        pytest.skip(reason)
    return [str(go_programs.built(IN_GO.parent, "example-hold-commit"))]


def in_java() -> list[str]:
    try:
        return ["java", "-cp", classpath(), str(IN_JAVA)]
    except Unavailable as reason:
        pytest.skip(str(reason))


def in_javascript() -> list[str]:
    if reason := node_programs.why_not():
        pytest.skip(reason)
    return ["node", str(node_programs.installed(IN_JAVASCRIPT.parent) / IN_JAVASCRIPT.name)]


@pytest.mark.timeout(300)  # for the first build in Go
@pytest.mark.parametrize("command", [in_go, in_java, in_javascript])
def test_program_sees_that_its_commit_is_held(
    http: tuple[str, Faults], command: Callable[[], list[str]], tmp_path: Path
) -> None:
    servers, faults = http
    done = subprocess.run(
        [*command(), servers, faults.url],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(BARNABAS_FAULTS_TOKEN=faults.token),
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr


@pytest.mark.parametrize("program", [IN_GO, IN_JAVA, IN_JAVASCRIPT], ids=lambda each: each.name)
def test_program_announces_what_it_prints(program: Path) -> None:
    comment = re.match(r"(//.*\n)+", program.read_text())
    assert comment is not None
    text = re.sub(r"^// ?", "", comment[0], flags=re.MULTILINE)
    assert dedent(text.partition("it prints:\n\n")[2]) == EXPECTED


def hold_commit(hold: Callable[[str], Any], wait: Any, release: Any, servers: str) -> str:
    """Run the scenario of the programs, with the levers of either surface."""
    name = "examples.faults.python"
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(DEADLINE)
    lever = hold(name)
    producer.begin_transaction()
    producer.produce(name, b"paid")
    assert producer.flush(DEADLINE) == 0
    commit = in_thread(lambda: producer.commit_transaction(DEADLINE))
    said = [f"held {wait(lever)} EndTxn, committed: {str(commit.done()).lower()}"]
    release(lever)
    commit.result(DEADLINE)
    said.append(f"released, committed: {str(commit.done()).lower()}")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": name})
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    message = consumer.poll(DEADLINE)
    assert message is not None
    said.append(f"read: {message.value().decode()}\n")
    consumer.close()
    return "\n".join(said)


def test_script_gives_the_same_over_http(http: tuple[str, Faults]) -> None:
    servers, faults = http

    def hold(name: str) -> int:
        found: int = faults.post("/v1/hold", api="EndTxn", transactional_id=name)["lever"]
        return found

    said = hold_commit(hold, lambda it: faults.wait(it)["touched"], faults.release, servers)
    assert said == EXPECTED


@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_script_gives_the_same_with_levers_of_python(processes: bool) -> None:
    with Cluster(brokers=1, processes=processes) as cluster:

        def wait(lever: Any) -> int:
            lever.wait()
            return int(lever.touched)

        said = hold_commit(
            lambda name: cluster.hold("EndTxn", transactional_id=name),
            wait,
            lambda lever: lever.release(),
            cluster.bootstrap_servers,
        )
    assert said == EXPECTED
