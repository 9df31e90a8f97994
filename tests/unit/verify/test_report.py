"""What `verify eos` says of a run, and the exit code that programs go by."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.verify import verify
from barnabas.verify.judge import judge
from barnabas.verify.report import as_json, exit_code, show
from tests.unit.verify.histories import Cluster


def unused(*, one_went_well: bool = False) -> Cluster:
    """Of a cluster that answered nothing, or one request, and could not be read at the end."""
    cluster = Cluster()
    for _ in range(8):
        op = cluster.history.invoke("p", "init", {"id": "p"})
        cluster.history.info(op, "COORDINATOR_NOT_AVAILABLE")
    if one_went_well:
        cluster.init("p")
    return cluster


def test_a_cluster_that_could_not_be_used_has_shown_no_anomaly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That it could not be read to its end was taken for lost data: exit code 3."""
    verdict = judge(unused().events())
    assert [each.name for each in verdict.anomalies] == ["no-final-read"]
    assert exit_code(verdict) == 1
    problems = {"p: REQUEST_TIMED_OUT": 3, "the end: COORDINATOR_NOT_AVAILABLE": 1}
    assert as_json(verdict, problems)["verdict"] == "unusable"
    show(verdict, problems)
    assert "no-final-read" not in capsys.readouterr().out


def test_its_history_is_judged_alike(tmp_path: Path) -> None:
    file = tmp_path / "history"
    unused().save(file)
    done = CliRunner().invoke(verify, ["eos", "check", str(file), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (1, "unusable")
    assert "the cluster could not be used" in done.stderr


def test_where_something_went_well_the_end_must_be_readable() -> None:
    assert exit_code(judge(unused(one_went_well=True).events())) == 3
