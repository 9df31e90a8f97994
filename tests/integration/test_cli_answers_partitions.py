"""The JSON answers of `barnabas partitions`, held against their schemas."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Cluster
from tests.support.answers import holds
from tests.support.command_line import Cli


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(configs={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


def planned(path: Path, topic: str, *replicas: int) -> str:
    row = {"topic": topic, "partition": 0, "replicas": list(replicas)}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def test_a_plan_that_moves_is_cancelled_and_ends(cli: Cli, servers: str, tmp_path: Path) -> None:
    """The throttle delays the second of three records of 900 KB."""
    cli("topics", "create", "slow", "-r", "1")
    cli("partitions", "reassign", planned(tmp_path / "first", "slow", 1), "--wait")
    for _ in range(3):
        cli("produce", "slow", stdin=b"x" * 900_000 + b"\n")
    there = planned(tmp_path / "there", "slow", 2)
    start = ("partitions", "reassign", there, "--throttle")
    assert holds(servers, *start, "20KB") == [{"topic": "slow", "partition": 0, "result": "moving"}]
    progress = {"topic": "slow", "partition": 0, "replicas": [2, 1], "wanted": [2]}
    assert holds(servers, "partitions", "verify", there, code=1) == [progress | {"state": "moving"}]
    elsewhere = planned(tmp_path / "elsewhere", "slow", 3)
    (row,) = holds(servers, "partitions", "verify", elsewhere, code=1)
    assert row["state"] == "moving elsewhere"
    assert holds(servers, "partitions", "list") == [
        {"topic": "slow", "partition": 0, "replicas": [2, 1], "adding": [2], "removing": [1]}
    ]
    assert holds(servers, "partitions", "cancel", there) == [
        {"topic": "slow", "partition": 0, "result": "cancelled"}
    ]
    (row,) = holds(servers, "partitions", "verify", there, code=1)
    assert row["state"] == "elsewhere"
    assert holds(servers, *start, "100MB", "--wait") == [
        progress | {"state": "done", "replicas": [2]}
    ]
    assert holds(servers, "partitions", "list") == []


def test_outcomes_of_changes_that_are_refused_and_not_needed(
    cli: Cli, servers: str, tmp_path: Path
) -> None:
    cli("topics", "create", "still", "-r", "3")
    (row,) = holds(
        servers, "partitions", "reassign", planned(tmp_path / "plan", "still", 9), code=1
    )
    assert "no such broker is registered" in row["result"]
    (row,) = holds(servers, "partitions", "elect", "still")
    assert row["result"] in ("elected", "the partition has the wanted leader already")


def test_plans(cli: Cli, servers: str, tmp_path: Path) -> None:
    cli("topics", "create", "planned", "-p", "2", "-r", "1")
    for options in (("--current",), ("--brokers", "1,2"), ("--replication-factor", "2")):
        words = ("partitions", "plan", "planned", *options)
        plan = holds(servers, *words)
        assert {row["partition"] for row in plan["partitions"]} == {0, 1}
        assert plan.keys() == json.loads(cli(*words)).keys()
        (tmp_path / "plan").write_text(json.dumps(plan))
        holds(servers, "partitions", "reassign", str(tmp_path / "plan"), "--wait")
