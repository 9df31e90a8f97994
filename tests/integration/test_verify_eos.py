"""`barnabas verify eos` on a broker without faults: no workload finds an anomaly."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.failures import explain
from barnabas.cli.main import cli
from barnabas.testing import Broker, Cluster
from tests.support.command_line import on_a_terminal
from tests.support.newer_producer import NewerProducer

KEYS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
}


def eos(*words: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "eos", *words])


@pytest.mark.parametrize("workload", ["queue", "pipeline", "hijack"])
def test_verify_eos_finds_no_anomaly_on_a_broker_without_faults(
    workload: str, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        words = ["-b", broker.bootstrap_servers, "-w", workload, "-d", "1", "--json"]
        done = eos(*words, "--transaction-timeout", "2", "--history", str(history))
    verdict = json.loads(done.stdout)
    assert (done.exit_code, verdict["verdict"]) == (0, "clean"), done.output
    assert verdict["problems"] == {}
    assert verdict["figures"]["committed"] > 0
    again = eos("check", str(history), "--json")
    assert json.loads(again.stdout)["figures"] == verdict["figures"]


def told_soon(*words: str) -> str:
    """Return the error of a cluster that cannot be used."""
    began = time.monotonic()
    done = eos(*words)
    assert time.monotonic() - began < 10
    assert isinstance(done.exception, Exception), done.output
    return explain(done.exception)


def test_cluster_that_cannot_commit_is_told_soon() -> None:
    log = {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "2"}
    with Cluster(KEYS | log, brokers=2) as cluster:
        servers = cluster.bootstrap_servers
        topics = ("-b", servers, "--replication-factor")
        assert told_soon(*topics, "3").startswith("INVALID_REPLICATION_FACTOR: ")
        # The transaction log exists from here on.
        NewerProducer(servers, "id").init()
        cluster.stop_broker(2)
        assert told_soon(*topics, "1") == "no transaction was committed in 6 s"


def test_terminal_shows_what_the_load_has_done_so_far() -> None:
    with Broker(KEYS) as broker:
        words = ("verify", "eos", "-d", "2.5", "--transaction-timeout", "2")
        shown = on_a_terminal(broker.bootstrap_servers, *words, columns=200, errors=True)
    counts = [
        [int(each.replace(",", "")) for each in line]
        for line in re.findall(r"([\d,]+) sends, ([\d,]+) transactions ended", shown)
    ]
    assert counts == sorted(counts)
    assert counts[0] == [0, 0] < counts[-1]


def test_an_interrupt_ends_the_load_and_the_run_is_judged(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        words = ["verify", "eos", "-b", broker.bootstrap_servers, "-d", "3600", "--json"]
        running = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *words, "--history", str(history)],
            stdout=subprocess.PIPE,
        )
        give_up = time.monotonic() + 30
        while not history.exists() or '"f":"end","type":"ok"' not in history.read_text():
            assert time.monotonic() < give_up
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        verdict = json.loads(running.communicate(timeout=60)[0])
    assert (running.returncode, verdict["verdict"]) == (0, "clean")
    assert verdict["figures"]["committed"] > 0


def test_verify_eos_finds_no_anomaly_while_replicas_and_leaders_move(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Cluster(KEYS) as cluster:
        words = ["-b", cluster.bootstrap_servers, "-d", "3", "--churn", "--json"]
        done = eos(*words, "--min-insync-replicas", "2", "--history", str(history))
    verdict = json.loads(done.stdout)
    assert (done.exit_code, verdict["verdict"]) == (0, "clean"), done.output
    assert verdict["problems"] == {}
    events = [json.loads(line) for line in history.read_text().splitlines()]
    changes = [each["value"] for each in events if each["f"] == "admin"]
    assert len([each for each in changes if each["error"] is None]) > 2
    compared = [each["value"] for each in events if each["f"] == "replica-end"]
    assert {each["node"] for each in compared} == {1, 2, 3}
    assert all(each["to"] == each["wanted"] > 0 for each in compared)
    assert any(each["value"].get("node") for each in events if each["f"] == "read")


def test_exit_code_tells_a_history_with_an_anomaly(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        eos("-b", broker.bootstrap_servers, "-d", "0.5", "--history", str(history))
    lines = history.read_text().splitlines(keepends=True)
    final = next(at for at, line in enumerate(lines) if '"reader":"final-committed"' in line)
    event = json.loads(lines[final])
    lost = event["value"]["records"].pop()
    lines[final] = json.dumps(event) + "\n"
    history.write_text("".join(lines))
    done = eos("check", str(history))
    assert done.exit_code == 3
    assert f"without {lost[1]}" in done.output
    assert done.output.endswith("anomalies\n")


def test_verify_refuses_a_file_that_is_not_a_history(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text("hello\n")
    assert "line 1 is not an event" in str(eos("check", str(history)).exception)
