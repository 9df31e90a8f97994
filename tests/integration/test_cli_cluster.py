"""`barnabas cluster info|health` and `barnabas brokers` on three brokers."""

import json
import time
from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster
from tests.support.command_line import DEADLINE, Cli
from tests.support.supervised import running


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


def test_watch_prints_changes_with_times_and_causes_before_symptoms(
    cluster: Cluster, cli: Cli
) -> None:
    cli("topics", "create", "watched", "-r", "3")
    assert problems(cli, "--wait", "20") == []
    lost = cli.json("brokers", "list")[-1]["broker"]
    dead = f"broker {lost}"
    watch = ("cluster", "health", "--watch", "-b", cli.servers)
    with running(*watch, "--json") as programs, running(*watch) as people:
        for each in (programs, people):
            each.says("healthy")
        cluster.stop_broker(lost)
        for each in (programs, people):
            each.says(f"not in sync: {dead}")
        found = [each[:2] for each in problems(cli)]
        assert found[0] == ("brokers", dead)
        assert ("isr", "watched-0") in found
        cluster.start_broker(lost)
        programs.says('"healthy":true')
        people.says("The cluster is healthy")
        for each in (programs, people):
            each.process.kill()
            each.ends()
    changes = [json.loads(line) for line in programs.said if line]
    assert [each["healthy"] for each in changes] == [True, *[False] * (len(changes) - 2), True]
    times = [each["at_ms"] for each in changes]
    assert times == sorted(times)
    assert abs(times[-1] - time.time() * 1000) < 60_000
    appeared = [row["where"] for each in changes for row in each["appeared"]]
    assert appeared.index(dead) < appeared.index("watched-0")
    assert all(each["appeared"] or each["solved"] for each in changes[1:])
    assert {row["where"] for each in changes for row in each["solved"]} == set(appeared)
    lines = [line.rstrip("\n").split("\t") for line in people.said if line]
    assert {len(each) for each in lines} == {2, 5}
    assert all(each[0].endswith("+00:00") for each in lines)
    assert lines[0][1] == lines[-1][1] == "The cluster is healthy."
    assert {each[1] for each in lines[1:-1]} == {"problem", "solved"}
