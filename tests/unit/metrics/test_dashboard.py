"""The metrics of the Grafana dashboard exist."""

import json
import re
from pathlib import Path

from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"
_METRIC = re.compile(r"\b((?:kafka|barnabas)_\w+?)(?:_bucket)?\{")


def test_every_panel_queries_metrics_of_the_catalogue():
    registry = Registry()
    BrokerMetrics(registry)
    known = {family.name for family in registry.snapshot()}
    asked = {
        name
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", [])
        for name in _METRIC.findall(target["expr"])
    }
    assert len(asked) > 20
    assert asked <= known
