"""`brokers drain` and `undrain`, `cluster rolling-restart --check` and `partitions balance`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.partition_admin import PartitionAdmin
from barnabas.testing import Cluster
from tests.support.checker import Events, committed, run_until
from tests.support.command_line import Cli
from tests.support.waiting import until

KEYS = {
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(KEYS) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


def unhealthy(cli: Cli, *words: str) -> Any:
    code, out, errors = cli.run(*words, "--json")
    assert (code, errors) == (3, b"")
    return json.loads(out)


def loads(cli: Cli) -> dict[int, tuple[int, int]]:
    """Return the number of partitions that each broker leads, and of its replicas."""
    rows = cli.json("brokers", "list")
    return {row["broker"]: (row["leaders"], row["replicas"]) for row in rows}


def placed(cli: Cli, tmp_path: Path, topic: str, *replicas: list[int]) -> None:
    factor = str(len(replicas[0]))
    cli("topics", "create", topic, "-p", str(len(replicas)), "-r", factor)
    rows = [{"topic": topic, "partition": n, "replicas": ids} for n, ids in enumerate(replicas)]
    plan = tmp_path / "placed.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    cli("partitions", "reassign", str(plan), "--wait")
    cli("partitions", "elect", topic)


def test_drained_broker_may_be_stopped_and_gets_its_leaders_back(
    cluster: Cluster, cli: Cli, tmp_path: Path
) -> None:
    placed(
        cli, tmp_path, "orders", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]
    )
    cluster.wait_until_in_sync()
    planned = cli.json("brokers", "drain", "2", "--dry-run")
    assert [row["partition"] for row in planned] == [1, 4]
    assert all(row["wanted"][-1] == 2 for row in planned)
    assert loads(cli)[2] == (2, 6)
    drained = cli.json("brokers", "drain", "2")
    assert (drained["leaders"], drained["replicas"], drained["may_be_stopped"]) == (0, 6, True)
    assert loads(cli) == {1: (3, 6), 2: (0, 6), 3: (3, 6)}
    assert cli("brokers", "drain", "2") == (
        b"Broker 2 may be stopped: it leads no partition and has 6 replica(s).\n"
    )
    cluster.stop_broker(2)
    assert cli("produce", "orders", stdin=b"one\n") == b""
    cluster.start_broker(2)
    cluster.wait_until_in_sync()
    assert cli("brokers", "undrain", "2") == b"Broker 2 leads 2 partition(s) more.\n"
    assert loads(cli) == {1: (2, 6), 2: (2, 6), 3: (2, 6)}
    assert cli.json("brokers", "undrain", "2") == {"broker": 2, "leaders": 0}
    code, _, errors = cli.run("brokers", "drain", "9")
    assert (code, errors) == (1, b"barnabas: no live broker has the id 9\n")
    code, _, errors = cli.run("brokers", "drain", "2", "--throttle", "50MB")
    assert (code, b"--throttle is for --replicas" in errors) == (2, True)


def test_drain_does_not_say_done_while_the_broker_leads(
    cluster: Cluster, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(cli, tmp_path, "orders", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    cluster.wait_until_in_sync()

    async def elect_none(*_: object) -> dict[object, None]:
        return {}

    with monkeypatch.context() as slow:
        slow.setattr(PartitionAdmin, "elect_leaders", elect_none)
        drained = unhealthy(cli, "brokers", "drain", "2", "--timeout", "2")
    assert (drained["leaders"], drained["may_be_stopped"]) == (1, False)
    problem = "it still leads it: run the command again"
    assert drained["problems"] == [{"topic": "orders", "partition": 1, "problem": problem}]
    assert cli.json("brokers", "drain", "2")["may_be_stopped"]


def test_drain_names_partitions_that_need_the_broker_and_moves_their_replicas(
    cluster: Cluster, cli: Cli, tmp_path: Path
) -> None:
    placed(cli, tmp_path, "alone", [2], [1])
    placed(cli, tmp_path, "pairs", [2, 1], [1, 3])
    cluster.wait_until_in_sync()
    cli("produce", "alone", "-p", "0", stdin=b"kept\n")
    needed = [
        {"topic": "alone", "partition": 0, "problem": "it has no other replica"},
        {
            "topic": "pairs",
            "partition": 0,
            "problem": "1 would be left in sync, and min.insync.replicas is 2",
        },
    ]
    drained = unhealthy(cli, "brokers", "drain", "2")
    assert (drained["may_be_stopped"], drained["problems"]) == (False, needed)
    (row,) = unhealthy(cli, "cluster", "rolling-restart", "--check", "--broker", "2")
    assert row["problems"] == [
        "alone-0: it has no other replica",
        "pairs-0: 1 would be left in sync, and min.insync.replicas is 2",
    ]
    drained = cli.json("brokers", "drain", "2", "--replicas", "--throttle", "50MB")
    assert (drained["leaders"], drained["replicas"], drained["problems"]) == (0, 0, [])
    assert loads(cli)[2] == (0, 0)
    cluster.stop_broker(2)
    assert cli("consume", "alone", "-o", "beginning", "-e") == b"kept\n"


def test_replicas_of_a_broker_that_has_died_go_to_others(
    cluster: Cluster, cli: Cli, tmp_path: Path
) -> None:
    placed(cli, tmp_path, "pairs", [2, 1], [1, 2])
    placed(cli, tmp_path, "lost", [2])
    cluster.wait_until_in_sync()
    cluster.stop_broker(2)
    until(lambda: 2 not in loads(cli))
    code, _, errors = cli.run("brokers", "drain", "2")
    assert (code, errors) == (1, b"barnabas: no live broker has the id 2\n")
    drained = unhealthy(cli, "brokers", "drain", "2", "--replicas")
    needed = [(row["topic"], row["partition"]) for row in drained["problems"]]
    assert ("pairs", 0) not in needed
    assert ("pairs", 1) not in needed
    assert ("lost", 0) in needed
    rows = cli.json("topics", "describe", "pairs")["partitions"]
    assert {frozenset(row["replicas"]) for row in rows} == {frozenset({1, 3})}


def test_restarts_are_checked_with_the_controller_last(cluster: Cluster, cli: Cli) -> None:
    cli("topics", "create", "whole", "-r", "3", "-p", "8")
    cluster.wait_until_in_sync()
    rows = cli.json("cluster", "rolling-restart", "--check", "--wait", "20")
    assert [row["controller"] for row in rows] == [False, False, True]
    assert all(row["may_be_restarted"] for row in rows)
    assert all(row["problems"] == [] for row in rows)
    lost = rows[0]["broker"]
    others = [row["address"] for row in cli.json("brokers", "list") if row["broker"] != lost]
    cluster.stop_broker(lost)
    # Any broker answers, also one that has not been told yet.
    until(lambda: all(len(cli.json("brokers", "list", "-b", at)) == 2 for at in others))
    left = unhealthy(cli, "cluster", "rolling-restart", "--check")
    assert {row["broker"] for row in left} == {row["broker"] for row in rows[1:]}
    assert all(f"broker {lost}: not alive" in row["problems"][0] for row in left)
    code, table, _ = cli.run("cluster", "rolling-restart", "--check")
    assert (code, len(left[0]["problems"]) > 4) == (3, True)
    more = len(left[0]["problems"]) - 3
    assert table.count(f"and {more} more, see --json".encode()) == len(left)
    code, _, errors = cli.run("cluster", "rolling-restart")
    assert (code, b"Missing option '--check'" in errors) == (2, True)


def test_balance_shows_its_plan_and_carries_it_out(cli: Cli, tmp_path: Path) -> None:
    placed(cli, tmp_path, "heap", *([1], [1], [1], [1], [1], [1]))
    cli("produce", "heap", "-p", "0", stdin=b"first\n")
    shown = cli.json("partitions", "balance", "--dry-run")
    assert (shown["changed"], loads(cli)[1]) == (False, (6, 6))
    back = tmp_path / "before.json"
    done = cli.json("partitions", "balance", "--yes", "--rollback", str(back))
    assert done == {**shown, "changed": True}
    after = {row["broker"]: row["replicas_after"] for row in done["brokers"]}
    assert {broker: count for broker, (_, count) in loads(cli).items()} == after
    assert max(after.values()) < 6
    assert cli("consume", "heap", "-p", "0", "-o", "beginning", "-e") == b"first\n"
    assert b"The brokers are balanced." in cli("partitions", "balance")
    code, _, _ = cli.run("partitions", "reassign", str(back), "--wait")
    assert (code, loads(cli)[1][1]) == (0, 6)
    code, _, errors = cli.run("partitions", "balance", stdin=b"n\n")
    assert (code, b"replica(s)" in errors) == (130, True)
    assert loads(cli)[1][1] == 6


def test_drains_and_balances_lose_nothing_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    steps = [
        ("brokers", "drain", "1"),
        ("brokers", "undrain", "1"),
        ("brokers", "drain", "2", "--replicas"),
        ("partitions", "balance", "--yes"),
    ]
    with Cluster(KEYS, brokers=4, processes=True) as cluster:
        cli = Cli(cluster.bootstrap_servers, (monkeypatch, capfdbinary), tmp_path)

        def enough(events: Events) -> bool:
            done = committed(events)
            if steps and done >= 20 * (5 - len(steps)):
                cli(*steps.pop(0))
            return not steps and done >= 120

        words = ["-w", "pipeline", "-r", "3", "--min-insync-replicas", "2"]
        done = run_until(enough, cluster.bootstrap_servers, tmp_path / "history", *words)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "clean"), done
    assert steps == []
