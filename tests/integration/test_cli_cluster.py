"""`barnabas cluster info|health` and `barnabas brokers` on three brokers."""

import json
import time
from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster
from tests.support.command_line import DEADLINE, Cli


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


def problems(cli: Cli, *arguments: str) -> list[tuple[str, str, str]]:
    code, out, errors = cli.run("cluster", "health", *arguments, "--json")
    found = [(row["check"], row["where"], row["problem"]) for row in json.loads(out)]
    assert (code, errors) == (3 if found else 0, b"")
    return found


def test_state_of_a_cluster_and_its_brokers(cli: Cli) -> None:
    cli("topics", "create", "state", "-p", "3", "-r", "3")
    info = cli.json("cluster", "info")
    listed = cli.json("brokers", "list")
    ids = [row["broker"] for row in listed]
    assert [row["broker"] for row in info["brokers"]] == ids
    assert info["controller"] in ids
    assert [row["controller"] for row in listed].count(True) == 1
    assert sum(row["leaders"] for row in listed) >= 3
    assert (info["topics"], info["partitions"]) == (1, 3)
    assert info["features"]["transaction.version"] == 2
    one = cli.json("brokers", "describe", str(ids[0]))
    assert (one["address"], one["offline_log_dirs"]) == (listed[0]["address"], [])
    assert f"controller\t{info['controller']}\n".encode() in cli("cluster", "info")
    code, _, errors = cli.run("brokers", "describe", "99")
    assert (code, b"no live broker has the id 99" in errors) == (1, True)


def test_health_names_each_problem(cluster: Cluster, cli: Cli) -> None:
    cli("topics", "create", "whole", "-r", "3", "-c", "min.insync.replicas=3")
    assert problems(cli, "--wait", "20") == []
    assert cli("cluster", "health") == b"The cluster is healthy.\n"
    lost = cli.json("brokers", "list")[-1]["broker"]
    cluster.stop_broker(lost)
    expected = ("isr", "whole-0", "2 replicas are in sync, min.insync.replicas is 3")
    deadline = time.monotonic() + DEADLINE
    while expected not in (found := problems(cli)):
        assert time.monotonic() < deadline, found
    cluster.start_broker(lost)
    assert problems(cli, "--wait", "20") == []
