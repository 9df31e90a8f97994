"""The report and the exit code of `barnabas verify eos`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.commands.verify import answer_of
from barnabas.cli.main import cli
from barnabas.verify.judge import judge
from barnabas.verify.report import exit_code, show
from tests.unit.verify.histories import Cluster


def unused(*, one_went_well: bool = False) -> Cluster:
    """Return the history of a cluster that answered one request or none, without final reads."""
    cluster = Cluster()
    for _ in range(8):
        op = cluster.history.invoke("p", "init", {"id": "p"})
        cluster.history.info(op, "COORDINATOR_NOT_AVAILABLE")
    if one_went_well:
        cluster.init("p")
    return cluster


def test_unusable_cluster_has_no_anomaly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Missing final reads were once reported as lost data, with exit code 3."""
    verdict = judge(unused().events())
    assert [each.name for each in verdict.anomalies] == ["no-final-read"]
    assert exit_code(verdict) == 1
    problems = {"p: REQUEST_TIMED_OUT": 3, "the end: COORDINATOR_NOT_AVAILABLE": 1}
    assert answer_of(verdict, problems).verdict == "unusable"
    show(verdict, problems)
    assert "no-final-read" not in capsys.readouterr().out


def test_check_of_its_history_has_the_same_verdict(tmp_path: Path) -> None:
    file = tmp_path / "history"
    unused().save(file)
    done = CliRunner().invoke(cli, ["verify", "eos", "check", str(file), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (1, "unusable")
    assert "the cluster could not be used" in done.stderr


def test_missing_final_read_is_an_anomaly_after_a_success() -> None:
    assert exit_code(judge(unused(one_went_well=True).events())) == 3
