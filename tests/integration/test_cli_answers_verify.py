"""The JSON answers of `barnabas verify`, held against their schemas."""

import json
from pathlib import Path

from barnabas.testing import Cluster
from tests.support.answers import held, holds
from tests.support.checker import committed, run_until

KEYS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


def test_a_run_its_history_and_its_replicas(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with Cluster(KEYS, brokers=2, data_dir=tmp_path / "data") as cluster:
        done = run_until(
            *(lambda events: committed(events) >= 10, cluster.bootstrap_servers, history),
            *("--keep", "-w", "pipeline", "-p", "2", "-r", "2", "--transaction-timeout", "2.5"),
        )
    verdict = held("verify eos", done.stdout)
    assert verdict["verdict"] == "clean"
    assert (verdict["run"]["workload"], verdict["run"]["timeout_seconds"]) == ("pipeline", 2.5)
    assert verdict["run"]["stages"][0].keys() == {"source", "target", "group"}
    assert verdict["figures"]["committed"] >= 10
    assert holds("", "verify", "eos", "check", str(history)) == {**verdict, "problems": {}}

    lines = history.read_text().splitlines(keepends=True)
    final = next(at for at, line in enumerate(lines) if '"reader":"final-committed"' in line)
    event = json.loads(lines[final])
    event["value"]["records"].pop()
    lines[final] = json.dumps(event) + "\n"
    history.write_text("".join(lines))
    verdict = holds("", "verify", "eos", "check", str(history), code=3)
    assert verdict["verdict"] == "anomalies"
    found = [anomaly for each in verdict["checks"] for anomaly in each["anomalies"]]
    assert event["value"]["at"] in [each["at"] for each in found]
    # The file begins in the middle of a run.
    history.write_text("".join(lines[1:2]))
    beginning = holds("", "verify", "eos", "check", str(history), code=4)
    assert (beginning["verdict"], beginning["run"]) == ("void", None)

    one, other = (str(tmp_path / "data" / f"broker-{number}") for number in (1, 2))
    equal = holds("", "verify", "replicas", one, other)
    assert equal["batches"] > equal["partitions"] > 0
    assert equal["anomalies"] == []
    partition = event["value"]["at"]
    (log,) = (Path(one) / "{}-{}".format(*partition)).glob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    differs = holds("", "verify", "replicas", one, other, code=3)
    assert differs["anomalies"][0]["at"] == partition
