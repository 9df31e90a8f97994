"""`barnabas partitions` moves replicas and leaders of topics that hold records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Cluster
from tests.support.command_line import Cli

NAMES = ("fragile", "healthy", "lonely")
RECORDS = b"".join(b"%d\n" % number for number in range(2000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(configs={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


def plan(path: Path, topic: str, *replicas: list[int]) -> str:
    rows = [
        {"topic": topic, "partition": index, "replicas": ids} for index, ids in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def topic_with(cli: Cli, name: str, tmp_path: Path, *replicas: list[int]) -> None:
    """Create a topic whose partitions have these replicas, led by the first; produce to one of
    them."""
    factor = str(len(replicas[0]))
    cli("topics", "create", name, "-p", str(len(replicas)), "-r", factor)
    cli("partitions", "reassign", plan(tmp_path / "first", name, *replicas), "--wait")
    cli("partitions", "elect", name)
    cli("produce", name, "-p", "0", stdin=RECORDS)


def described(cli: Cli, topic: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = cli.json("topics", "describe", topic)["partitions"]
    return partitions


def throttles(cli: Cli, kind: str, name: str) -> dict[str, str]:
    rows = cli.json("configs", "describe", kind, name)
    return {
        row["key"]: row["value"]
        for row in rows
        if "throttled" in row["key"] and row["source"] == kind
    }


def test_replicas_move_and_come_back_with_every_record(cli: Cli, tmp_path: Path) -> None:
    topic_with(cli, "moved", tmp_path, [1], [2])
    back = str(tmp_path / "back")
    there = plan(tmp_path / "there", "moved", [3], [3, 1])
    rows = cli.json("partitions", "reassign", there, "--wait", "--rollback", back)
    assert [(row["state"], row["replicas"]) for row in rows] == [("done", [3]), ("done", [3, 1])]
    shown = described(cli, "moved")
    assert [(row["leader"], set(row["isr"]), row["end"]) for row in shown] == [
        (3, {3}, 2000),
        (3, {3, 1}, 0),
    ]
    assert cli("consume", "moved", "-p", "0", "-o", "beginning", "-e") == RECORDS
    cli("partitions", "reassign", back, "--wait")
    assert [row["replicas"] for row in described(cli, "moved")] == [[1], [2]]
    assert cli("consume", "moved", "-p", "0", "-o", "beginning", "-e") == RECORDS
    assert cli.json("partitions", "list") == []


def test_throttled_move_is_delayed_and_removes_its_throttle(cli: Cli, tmp_path: Path) -> None:
    """2.7 MB at 200 KB/s: each record is a batch, and the throttle delays the second one."""
    topic_with(cli, "slow", tmp_path, [1])
    for _ in range(3):
        cli("produce", "slow", "-p", "0", stdin=b"x" * 900_000 + b"\n")
    there = plan(tmp_path / "there", "slow", [2])
    code, _, said = cli.run("partitions", "reassign", there, "--throttle", "200000")
    assert code == 0
    assert b"throttle stays" in said
    assert throttles(cli, "topic", "slow") == {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    for broker in ("1", "2"):
        assert set(throttles(cli, "broker", broker).values()) == {"200000"}
    assert throttles(cli, "broker", "3") == {}
    code, out, _ = cli.run("partitions", "verify", there, "--json")
    assert (code, json.loads(out)[0]["state"]) == (1, "moving")
    (row,) = cli.json("partitions", "list")
    assert (row["replicas"], row["adding"], row["removing"]) == ([2, 1], [2], [1])
    code, _, said = cli.run("partitions", "reassign", there)
    assert code == 1
    assert b"--additional" in said
    assert cli("partitions", "cancel", there, "--keep-throttle").endswith(b"slow\t0\tcancelled\n")
    assert throttles(cli, "topic", "slow") != {}
    cli("partitions", "reassign", there, "--throttle", "100MB", "--wait")
    assert throttles(cli, "topic", "slow") == throttles(cli, "broker", "1") == {}
    assert described(cli, "slow")[0]["replicas"] == [2]


def test_leaders_go_back_to_the_first_replica(cluster: Cluster, cli: Cli, tmp_path: Path) -> None:
    topic_with(cli, "led", tmp_path, [1, 2], [2, 1])
    cli("partitions", "reassign", plan(tmp_path / "turned", "led", [2, 1], [2, 1]), "--wait")
    assert [row["leader"] for row in described(cli, "led")] == [1, 2]
    cluster.wait_until_in_sync()
    rows = cli.json("partitions", "elect", "led")
    assert [row["result"] for row in rows] == [
        "elected",
        "the partition has the wanted leader already",
    ]
    assert [row["leader"] for row in described(cli, "led")] == [2, 2]
    cli("partitions", "elect", "--all")


def test_a_plan_for_other_brokers_keeps_the_number_of_replicas(cli: Cli) -> None:
    cli("topics", "create", "planned", "-p", "4", "-r", "2")
    planned = json.loads(cli("partitions", "plan", "planned", "--brokers", "2,3"))
    assert {tuple(sorted(row["replicas"])) for row in planned["partitions"]} == {(2, 3)}
    assert len(planned["partitions"]) == 4
    current = json.loads(cli("partitions", "plan", "planned", "--current"))
    shown = described(cli, "planned")
    assert [row["replicas"] for row in current["partitions"]] == [row["replicas"] for row in shown]


def test_replication_factor_is_raised_and_lowered(cli: Cli, tmp_path: Path) -> None:
    topic_with(cli, "grown", tmp_path, [2], [3])
    file = tmp_path / "factor"

    def changed(factor: str) -> list[dict[str, Any]]:
        file.write_bytes(cli("partitions", "plan", "grown", "--replication-factor", factor))
        cli("partitions", "reassign", str(file), "--wait")
        rows = described(cli, "grown")
        assert [row["leader"] for row in rows] == [2, 3]
        return rows

    assert [len(row["isr"]) for row in changed("3")] == [3, 3]
    assert cli("consume", "grown", "-p", "0", "-o", "beginning", "-e") == RECORDS
    code, _, said = cli.run("partitions", "plan", "grown", "--replication-factor", "3")
    assert (code, b"have 3 replicas already" in said) == (1, True)
    code, _, said = cli.run("partitions", "plan", "grown", "--replication-factor", "4")
    assert (code, b"too few brokers for 4 replicas of grown-0" in said) == (1, True)
    cli("topics", "alter", "grown", "-c", "min.insync.replicas=2")
    code, _, said = cli.run("partitions", "plan", "grown", "--replication-factor", "1")
    assert (code, b"min.insync.replicas of grown is 2" in said) == (1, True)
    cli("topics", "alter", "grown", "-c", "min.insync.replicas=1")
    assert [row["replicas"] for row in changed("1")] == [[2], [3]]


def test_brokers_of_a_plan_are_honoured_or_refused_with_the_reason(
    cli: Cli, tmp_path: Path
) -> None:
    topic_with(cli, "shrunk", tmp_path, [1, 2, 3])
    plan_it = ("partitions", "plan", "shrunk", "--brokers")
    code, _, said = cli.run(*plan_it, "1,3")
    assert (code, b"topic shrunk has 3 replicas, and --brokers names 2: name more" in said) == (
        1,
        True,
    )
    planned = cli(*plan_it, "2,3", "--replication-factor", "2")
    rows = json.loads(cli("partitions", "reassign", "-", "--wait", "--json", stdin=planned))
    assert [(row["state"], row["replicas"]) for row in rows] == [("done", [2, 3])]
    cli("topics", "alter", "shrunk", "-c", "min.insync.replicas=1")
    code, _, said = cli.run(*plan_it, "1", "--replication-factor", "1")
    assert (code, b"2, 3, of which none may stay" in said) == (1, True)


def test_plan_for_all_has_every_partition_of_every_topic(cli: Cli) -> None:
    cli("topics", "create", "every", "-p", "3", "-r", "2")
    # The group makes the brokers create __consumer_offsets.
    cli("groups", "reset-offsets", "g", "-t", "every", "--to-earliest")
    current = cli("partitions", "plan", "--all", "--current")
    found = {(row["topic"], row["partition"]) for row in json.loads(current)["partitions"]}
    assert found >= {("every", 0), ("every", 1), ("every", 2), ("__consumer_offsets", 0)}
    rows = json.loads(cli("partitions", "verify", "-", "--json", stdin=current))
    assert {(row["topic"], row["partition"]) for row in rows} == found
    planned = json.loads(cli("partitions", "plan", "--all", "--brokers", "1,2,3"))
    assert {(row["topic"], row["partition"]) for row in planned["partitions"]} == found
    for wrong in (("--all", "every"), ()):
        code, _, said = cli.run("partitions", "plan", *wrong, "--current")
        assert (code, b"give either partitions or --all" in said) == (2, True)


def test_topics_describe_filters_partitions_with_problems(
    cluster: Cluster, cli: Cli, tmp_path: Path
) -> None:
    topic_with(cli, "healthy", tmp_path, [1, 2, 3])
    topic_with(cli, "fragile", tmp_path, [2, 3])
    topic_with(cli, "lonely", tmp_path, [3])
    filters = ("--under-replicated", "--under-min-isr", "--at-min-isr", "--unavailable")

    def lacking(*arguments: str) -> dict[str, list[str]]:
        code, out, errors = cli.run("topics", "describe", *arguments, "--json")
        rows = json.loads(out)
        assert (code, errors) == (3 if rows else 0, b"")
        return {row["topic"]: row["lacks"] for row in rows if row["topic"] in NAMES}

    cluster.wait_until_in_sync()
    assert lacking("--under-replicated") == {}
    assert lacking("--at-min-isr") == {"fragile": ["at-min-isr"]}
    cluster.stop_broker(3)
    assert lacking("fragile", *filters) == {"fragile": ["under-replicated", "under-min-isr"]}
    assert lacking(*filters) == {
        "fragile": ["under-replicated", "under-min-isr"],
        "healthy": ["under-replicated", "at-min-isr"],
        "lonely": ["under-min-isr", "unavailable"],
    }
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert lacking("--under-replicated", "--unavailable") == {}


def test_partitions_reports_an_impossible_request_in_one_line(cli: Cli, tmp_path: Path) -> None:
    def refused(*arguments: str) -> bytes:
        code, out, said = cli.run(*arguments)
        assert code != 0
        return out + said

    cli("topics", "create", "still")
    elsewhere = plan(tmp_path / "elsewhere", "still", [9])
    assert b"no such broker is registered" in refused("partitions", "reassign", elsewhere)
    unknown = plan(tmp_path / "unknown", "nowhere", [1])
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in refused("partitions", "reassign", unknown)
    assert b"no such broker: 9" in refused("partitions", "plan", "still", "--brokers", "9")
    (tmp_path / "bad").write_text("{")
    assert b"not a plan: Invalid JSON" in refused("partitions", "verify", str(tmp_path / "bad"))
    assert b"--all" in refused("partitions", "cancel")
    assert b"--all" in refused("partitions", "elect")
    assert cli.json("partitions", "cancel", "--all") == []
