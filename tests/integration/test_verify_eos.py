"""`barnabas verify eos` on a broker without faults: no workload finds an anomaly."""

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.failures import explain
from barnabas.cli.main import cli
from barnabas.testing import Broker, Cluster
from tests.support.checker import Events, committed, events, run_until
from tests.support.command_line import on_a_terminal
from tests.support.newer_producer import NewerProducer

KEYS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
}


def eos(*words: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "eos", *words])


@pytest.mark.parametrize("workload", ["queue", "pipeline", "consumer-members", "hijack"])
def test_verify_eos_finds_no_anomaly_on_a_broker_without_faults(
    workload: str, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        words = ["-w", workload, "--transaction-timeout", "2"]
        done = run_until(
            lambda events: committed(events) >= 10, broker.bootstrap_servers, history, *words
        )
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "clean"), done
    assert verdict["problems"] == {}
    assert verdict["figures"]["committed"] >= 10
    again = eos("check", str(history), "--json")
    assert json.loads(again.stdout)["figures"] == verdict["figures"]


def test_members_in_the_consumer_protocol_process_once_through_kills(tmp_path: Path) -> None:
    with Cluster(KEYS, processes=True) as cluster:
        left = [1, 2, 3]

        def enough(events: Events) -> bool:
            done = committed(events)
            if left and done >= 50 * (4 - len(left)):
                broker = left.pop()
                cluster.kill(broker)
                cluster.start_broker(broker)
            return not left and done >= 250

        words = ["-w", "consumer-members", "--min-insync-replicas", "2"]
        done = run_until(enough, cluster.bootstrap_servers, tmp_path / "history", *words)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "clean"), done
    assert left == []


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
        words = ("verify", "eos", "-d", "7200", "--transaction-timeout", "2")
        some = r"sends, [1-9][\d,]* transactions ended"
        shown = on_a_terminal(
            broker.bootstrap_servers, *words, columns=200, errors=True, interrupt_at=some
        )
    counts = [
        [int(each.replace(",", "")) for each in line]
        for line in re.findall(r"([\d,]+) sends, ([\d,]+) transactions ended", shown)
    ]
    assert counts == sorted(counts)
    assert counts[0] == [0, 0] < counts[-1]


def test_an_interrupt_ends_the_load_and_the_run_is_judged(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        done = run_until(committed, broker.bootstrap_servers, history)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "clean")
    assert verdict["figures"]["committed"] > 0


def test_verify_eos_finds_no_anomaly_while_replicas_and_leaders_move(tmp_path: Path) -> None:
    history = tmp_path / "history"

    def enough(seen: Events) -> bool:
        changes = [each for each in seen if each["f"] == "admin" and not each["value"]["error"]]
        from_followers = [each for each in seen if each["f"] == "read" and "node" in each["value"]]
        return len(changes) > 2 and committed(seen) >= 10 and bool(from_followers)

    with Cluster(KEYS) as cluster:
        words = ["--churn", "--min-insync-replicas", "2"]
        done = run_until(enough, cluster.bootstrap_servers, history, *words)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "clean"), done
    assert verdict["problems"] == {}
    assert enough(events(history))
    compared = [each["value"] for each in events(history) if each["f"] == "replica-end"]
    assert {each["node"] for each in compared} == {1, 2, 3}
    assert all(each["to"] == each["wanted"] > 0 for each in compared)


def test_exit_code_tells_a_history_with_an_anomaly(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Broker(KEYS) as broker:
        run_until(lambda seen: committed(seen) >= 10, broker.bootstrap_servers, history)
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
