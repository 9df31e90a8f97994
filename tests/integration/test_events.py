"""The events that brokers keep and serve at /events, by what causes them in real clusters."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.testing import Broker
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.watched import Watched


@pytest.fixture(scope="module")
def cluster() -> Iterator[Watched]:
    with Watched() as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=3)
        cluster.wait_until_in_sync()
        yield cluster


def test_start_and_election_of_the_controller_are_there(cluster: Watched) -> None:
    started = {each["of"]: each for each in cluster.events("broker_started")}
    assert sorted(started) == [1, 2, 3]
    assert started[1]["subject"] == {"broker": 1}
    assert "last_run empty" in started[1]["text"]
    elected = cluster.wait_for("controller_elected")
    assert elected["of"] == elected["subject"]["broker"] == cluster.controller


def test_kill_of_a_leader_is_an_election_and_a_smaller_isr(cluster: Watched) -> None:
    killed = next(each for each in (1, 2, 3) if each != cluster.controller)
    cluster.move_leader("orders", 0, killed)
    cluster.kill(killed)
    elected = cluster.wait_for(
        "leader_elected", f"before {killed}, leader ", topic="orders", partition=0
    )
    assert f"isr {sorted({1, 2, 3} - {killed})}" in elected["text"]
    gone = cluster.wait_for("brokers_changed", f"gone [{killed}], new []")
    assert gone["of"] == elected["of"] == cluster.controller
    assert gone["time_ms"] <= elected["time_ms"]
    cluster.start_broker(killed)
    cluster.wait_until_in_sync()
    assert "last_run killed" in cluster.wait_for("broker_started", broker=killed)["text"]
    cluster.wait_for("isr_changed", "now [1, 2, 3]", topic="orders", partition=0)


def test_next_controller_tells_of_the_leaderships_of_the_one_before(cluster: Watched) -> None:
    killed = cluster.controller
    cluster.move_leader("orders", 0, killed)
    cluster.kill(killed)
    elected = cluster.wait_for(
        "leader_elected", f"before {killed}, leader ", topic="orders", partition=0
    )
    assert elected["of"] == cluster.controller != killed
    cluster.start_broker(killed)
    cluster.wait_until_in_sync()


def test_lost_session_is_lost_and_back(cluster: Watched) -> None:
    other = next(each for each in (1, 2, 3) if each != cluster.controller)
    cluster.expire_session(other)
    lost = cluster.wait_for("session_lost", broker=other)
    back = cluster.wait_for("session_back", broker=other)
    assert lost["sequence"] < back["sequence"]
    assert cluster.wait_for("fault_set", "session ended")["of"] == other


def test_fault_is_set_and_healed(cluster: Watched) -> None:
    lever = cluster.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", topic="no-topic")
    for broker in (1, 2, 3):
        cluster.wait_for("fault_set", "request find_coordinator", topic="no-topic")
        assert any(
            "error COORDINATOR_NOT_AVAILABLE" in each["text"] and each["of"] == broker
            for each in cluster.events("fault_set")
        )
    assert not cluster.events("fault_healed")
    lever.remove()
    number = cluster.wait_for("fault_healed")["subject"]["lever"]
    assert cluster.wait_for("fault_set", lever=number)
    cluster.cut_clients(1)
    assert cluster.wait_for("fault_set", "cut the links of clients")["of"] == 1
    cluster.cut_store(2)
    assert cluster.wait_for("fault_set", "cut the links to the metadata store")["of"] == 2
    cluster.heal()
    cluster.wait_for("fault_healed", "links all", broker=1)
    cluster.wait_for("fault_healed", "links all", broker=2)
    assert [each["of"] for each in cluster.events("fault_healed")].count(3) == 1


def producer(cluster: Watched, transactional_id: str, **keys: Any) -> confluent_kafka.Producer:
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **keys,
        }
    )
    made.init_transactions(20)
    return made


def test_transaction_that_times_out_or_is_fenced_is_there(cluster: Watched) -> None:
    slow = producer(cluster, "slow", **{"transaction.timeout.ms": 600_000})
    slow.begin_transaction()
    slow.produce("orders", b"1", partition=0)
    slow.flush()
    assert not cluster.events("transaction_timed_out")
    cluster.jump_transaction_clock(700)
    event = cluster.wait_for("transaction_timed_out", transactional_id="slow")
    assert "partitions 1" in event["text"]
    old = producer(cluster, "shared")
    old.begin_transaction()
    old.produce("orders", b"1", partition=1)
    old.flush()
    assert not cluster.events("transaction_fenced")
    producer(cluster, "shared")
    event = cluster.wait_for("transaction_fenced", transactional_id="shared")
    assert "by 127.0.0.1" in event["text"]
    assert event["of"] == cluster.coordinator_of(transactional_id="shared")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_of_a_group_has_its_reason(cluster: Watched, protocol: str) -> None:
    group = f"<img src=x>-{protocol}"
    keys = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0}
    members = [
        confluent_kafka.Consumer(keys | {"group.protocol": protocol, "client.id": name})
        for name in ("first", "second")
    ]
    first, second = members
    first.subscribe(["orders"])
    until(lambda: first.poll(0.05) is None and len(first.assignment()) == 2)
    event = cluster.wait_for("group_rebalance", f"protocol {protocol}, reason member", group=group)
    assert "joins" in event["text"]
    second.subscribe(["orders"])
    until(lambda: all(each.poll(0.05) is None and len(each.assignment()) == 1 for each in members))
    second.close()
    cluster.wait_for("group_rebalance", "leaves", group=group)
    first.close()


def test_reassignment_begins_and_ends(cluster: Watched) -> None:
    cluster.create_topic("moved", replication_factor=1)
    leader = cluster.leader_of("moved")
    to = next(each for each in (1, 2, 3) if each != leader)
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [to]}]}
    words = ["partitions", "reassign", "-", "--wait", "-b", cluster.bootstrap_servers]
    done = CliRunner().invoke(cli, words, input=json.dumps(plan))
    assert done.exit_code == 0, done.output
    event = cluster.wait_for("reassignment_started", topic="moved", partition=0)
    assert f"before [{leader}], to [{to}]" in event["text"]
    cluster.wait_for("reassignment_finished", f"to [{to}]", topic="moved", partition=0)


def test_follower_reads_what_is_new(cluster: Watched) -> None:
    answer = cluster.answer(1)
    last = answer["events"][-1]["sequence"]
    later = cluster.answer(1, f"?after={last}")
    assert later == {"broker": 1, "run": answer["run"], "dropped": 0, "events": []}
    for wrong in ("?after=x", "?after=-1", f"?after={'9' * 30}", "?before=1"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            cluster.answer(1, wrong)


def test_command_merges_the_events_of_all_brokers(cluster: Watched) -> None:
    words = ["cluster", "events", "-b", cluster.bootstrap_servers]
    done = CliRunner().invoke(cli, [*words, "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {each["broker"] for each in rows} == {1, 2, 3}
    assert [each["time_ms"] for each in rows] == sorted(each["time_ms"] for each in rows)
    few = CliRunner().invoke(cli, [*words, "--kind", "controller_elected"])
    lines = few.stdout.splitlines()
    assert lines
    assert all("\tcontroller elected: epoch " in each for each in lines)
    middle = rows[len(rows) // 2]["time_ms"]
    later = CliRunner().invoke(cli, [*words, "--json", "--since", str(middle)])
    assert json.loads(later.stdout) == [each for each in rows if each["time_ms"] >= middle]


def test_follow_prints_events_as_they_come(cluster: Watched, tmp_path: Path) -> None:
    words = ("cluster", "events", "-b", cluster.bootstrap_servers, "--follow")
    path = tmp_path / "followed"
    with path.open("wb") as output:
        following = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *words, "--json"], stdout=output
        )
    try:
        until(lambda: "broker_started" in path.read_text())
        before = path.read_text().count('"fault_set"')
        cluster.jump_transaction_clock(0.001)
        until(lambda: path.read_text().count('"fault_set"') == before + 3)
    finally:
        following.send_signal(signal.SIGINT)
        following.wait(20)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    numbers = [(each["broker"], each["sequence"]) for each in rows]
    assert len({*numbers}) == len(numbers)


def test_events_need_the_token_of_the_endpoint(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("scrape-me\n")
    at = f"127.0.0.1:{free_port()}"
    keys = {"metrics.listener": at, "metrics.listener.token.file": str(token)}
    with Broker(keys) as broker:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://{at}/events", timeout=5)
        words = ["cluster", "events", "-b", broker.bootstrap_servers]
        without = CliRunner().invoke(cli, words)
        done = CliRunner().invoke(cli, [*words, "--token-file", str(token)])
    assert (without.exit_code, without.stdout) == (1, "")
    assert without.stderr == "broker 0: HTTP 401: a bearer token is needed\n"
    assert (done.exit_code, done.stderr) == (0, "")
    assert "\tbroker_started\tbroker 0\tbroker=0\tbroker started: " in done.stdout


def test_brokers_without_an_endpoint_are_named() -> None:
    with Broker() as broker:
        done = CliRunner().invoke(cli, ["cluster", "events", "-b", broker.bootstrap_servers])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "broker 0: no HTTP endpoint (metrics.listener)\n"
