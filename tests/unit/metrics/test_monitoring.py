"""deploy/monitoring and docs/alerts.md: their metrics and commands exist, and the rules do."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from barnabas.cli.main import cli
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.exposition import render
from barnabas.metrics.registry import Registry
from barnabas.pipeline.monitor.progress import (
    BatchEvent,
    BatchFigures,
    DecisionCounts,
    LastDecision,
    Monitor,
    Progress,
    SinkState,
)
from barnabas.pipeline.monitor.web import families
from docs.build.dashboard import DASHBOARD, dashboard

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "monitoring" / "alerts.yaml"
RULE_TESTS = RULES.with_name("alerts-test.yaml")
PAGE = ROOT / "docs" / "alerts.md"
_METRIC = re.compile(r"\b(?:kafka|barnabas|process)_[a-z0-9_]+")


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def exported() -> set[str]:
    """Return the names of the samples of a broker and of a job.

    A histogram has three, and none of its own.
    """
    registry = Registry()
    BrokerMetrics(registry)
    names = set()
    for family in registry.snapshot():
        ends = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        names |= {family.name + end for end in ends}
        assert f"# TYPE {family.name} {family.kind}\n".encode() in b"".join(render(family))
    return names | {family.name for family in families(full_progress())}


def full_progress() -> Progress:
    """Return a progress that has a value for every metric of a job."""
    batch = BatchFigures(1, 0.0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, "then", 1)
    monitor = Monitor("job", "sink", 0.0)
    monitor.add(BatchEvent(batch, ()))
    decision = LastDecision(1, "q", 1, 1, 1)
    monitor.cluster = SinkState(decision, DecisionCounts(1, 1, 0), (), None)
    return monitor.progress(1.0)


def sections() -> dict[str, str]:
    """Return the sections of docs/alerts.md by title."""
    _, *found = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2], strict=True))


def test_dashboard_is_the_generated_one():
    assert DASHBOARD.read_text() == dashboard(), "run `python -m docs.build.generate`"


def test_every_panel_queries_metrics_that_exist():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    asked = {name for query in queries for name in _METRIC.findall(query)}
    assert len(asked) > 50
    assert asked - exported() == set()


def test_panels_do_not_overlap():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("file", [RULES, RULE_TESTS, PAGE], ids=lambda path: path.name)
def test_rules_and_their_page_name_metrics_that_exist(file: Path):
    named = set(_METRIC.findall(file.read_text()))
    assert named - exported() == set()
    assert named or file == PAGE


def test_each_alert_is_explained_and_tested():
    names = [rule["alert"] for rule in alerts()]
    assert list(sections()) == names
    fired = {
        case["alertname"]
        for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]
        for case in test.get("alert_rule_test", ())
        if case.get("exp_alerts")
    }
    assert fired == set(names)
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_commands_of_the_page_exist():
    commands = re.findall(r"`(barnabas [^`]+)`|^(barnabas .+)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) > 20
    for text in (inline or line for inline, line in commands):
        command: click.Command = cli
        words = shlex.split(text)[1:]
        context = click.Context(cli)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, text
            command = found
        known = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= known, text


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", RULES),
        ("test", "rules", RULE_TESTS),
        ("check", "config", RULES.with_name("prometheus.yml")),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_files_pass_the_checks_of_prometheus(words: tuple[Any, ...]):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: it is in Debian's package prometheus")
    checked = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
