"""Apache Kafka's cluster tools on three brokers: replicas, leaders, health."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Cluster
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Tool, Tools
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("referee-tools")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(configs={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tool(tools: Tools, cluster: Cluster) -> Tool:
    return tools.at(cluster.bootstrap_servers)


def plan(path: Path, topic: str, *replicas: list[int]) -> str:
    rows = [
        {"topic": topic, "partition": index, "replicas": ids} for index, ids in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def replicas_of(tool: Tool, topic: str) -> list[str]:
    said = tool(kafka.TOPICS, "--describe", "--topic", topic)
    return re.findall(r"Replicas: ([\d,]+)", said)


def test_reassign_partitions(tool: Tool, tmp_path: Path) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "moved", "--replica-assignment", "1:2,2:1")
    tool(kafka.CONSOLE_PRODUCER, "--topic", "moved", stdin="one\ntwo\nthree\n")
    file = plan(tmp_path / "plan", "moved", [3, 2], [2, 3])
    begun = tool(
        kafka.REASSIGN_PARTITIONS,
        *("--reassignment-json-file", file, "--execute", "--throttle", "1000000"),
    )
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun
    assert '"replicas":[1,2]' in begun
    verify = ("--reassignment-json-file", file, "--verify")
    until(lambda: tool(kafka.REASSIGN_PARTITIONS, *verify).count("is completed.") == 2)
    assert replicas_of(tool, "moved") == ["3,2", "2,3"]
    assert "Clearing topic-level throttles" in tool(kafka.REASSIGN_PARTITIONS, *verify)
    entity = ("--entity-type", "topics", "--entity-name", "moved")
    assert "throttled" not in tool(kafka.CONFIGS, *entity, "--describe")
    assert "No partition reassignments found" in tool(kafka.REASSIGN_PARTITIONS, "--list")


def test_a_reassignment_is_listed_and_cancelled(tool: Tool, tmp_path: Path) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "slow", "--replica-assignment", "1:2")
    for _ in range(3):
        tool(kafka.CONSOLE_PRODUCER, "--topic", "slow", stdin="x" * 900_000 + "\n")
    file = plan(tmp_path / "plan", "slow", [1, 3])
    moving = ("--reassignment-json-file", file)
    tool(kafka.REASSIGN_PARTITIONS, *moving, "--execute", "--throttle", "200000")
    listed = tool(kafka.REASSIGN_PARTITIONS, "--list")
    assert "slow-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
    assert "is still in progress." in tool(kafka.REASSIGN_PARTITIONS, *moving, "--verify")
    faster = (*moving, "--execute", "--additional", "--throttle", "300000")
    assert "throttle limit was set to 300000" in tool(kafka.REASSIGN_PARTITIONS, *faster)
    cancelled = tool(kafka.REASSIGN_PARTITIONS, *moving, "--cancel")
    assert "Successfully cancelled partition reassignment for: slow-0" in cancelled
    assert replicas_of(tool, "slow") == ["1,2"]


def test_generate(tool: Tool, tmp_path: Path) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "spread", "--partitions", "6")
    topics = tmp_path / "topics"
    topics.write_text('{"topics": [{"topic": "spread"}], "version": 1}')
    said = tool(
        kafka.REASSIGN_PARTITIONS,
        *("--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3", "--generate"),
    )
    _, proposed = re.findall(r'(\{"version".*\})', said)
    assert len(json.loads(proposed)["partitions"]) == 6


def test_leader_election(cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "led", "--replica-assignment", "1:2,2:1")
    file = plan(tmp_path / "plan", "led", [2, 1], [2, 1])
    tool(kafka.REASSIGN_PARTITIONS, "--reassignment-json-file", file, "--execute")
    until(lambda: replicas_of(tool, "led") == ["2,1", "2,1"])
    cluster.wait_until_in_sync()
    one = ("--election-type", "preferred", "--topic", "led", "--partition", "0")
    said = tool(kafka.LEADER_ELECTION, *one)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in said
    assert "Valid replica already elected for partitions led-0" in tool(kafka.LEADER_ELECTION, *one)
    every = ("--election-type", "preferred", "--all-topic-partitions")
    tool(kafka.LEADER_ELECTION, *every)
    assert cluster.leader_of("led") == cluster.leader_of("led", 1) == 2


def test_topics_tool_lists_unhealthy_partitions(cluster: Cluster, tool: Tool) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "fragile", "--replica-assignment", "1:3")
    tool(kafka.TOPICS, "--create", "--topic", "lonely", "--replica-assignment", "3")
    cluster.wait_until_in_sync()

    def lacking(option: str) -> set[str]:
        said = tool(kafka.TOPICS, "--describe", option)
        return set(re.findall(r"Topic: (\w+)", said)) & {"fragile", "lonely"}

    assert lacking("--under-replicated-partitions") == set()
    assert lacking("--at-min-isr-partitions") == {"fragile"}
    cluster.stop_broker(3)
    assert lacking("--under-replicated-partitions") == {"fragile"}
    assert "fragile" in lacking("--under-min-isr-partitions")
    assert lacking("--unavailable-partitions") == {"lonely"}
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert lacking("--under-replicated-partitions") == set()
