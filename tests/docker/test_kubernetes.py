"""The manifests against Kubernetes' own schemas, from `pip install kubernetes-validate`.

The schemas are 100 MB: too much to fetch in a plain test run.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.docker.files import (
    ENSEMBLE,
    EXTERNAL,
    MANIFESTS,
    SECURE_MANIFESTS,
    charted,
    kustomized,
    needs_helm,
)

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

OLDEST = "1.28"
"""The first version with the label of a pod's number, from which the brokers' ids are taken."""
NEWEST = "1.35"


def validate(rendered: list[dict[str, Any]], version: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    for manifest in rendered:
        kubernetes.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("components", [(), (EXTERNAL, ENSEMBLE)], ids=["plain", "components"])
@pytest.mark.parametrize("base", [MANIFESTS, SECURE_MANIFESTS], ids=lambda base: base.name)
def test_manifests_match_kubernetes_schemas(
    base: Path, components: tuple[str, ...], version: str, tmp_path: Path
):
    rendered = kustomized(tmp_path, base, *components)
    assert len(rendered) >= 8
    validate(rendered, version)


@needs_helm
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(
    "settings",
    [
        ("external.enabled=true", "zookeeper.servers=3", "secure.secretName=files"),
        ("networkPolicies=false", "zookeeper.connect=zk:2181", r"config.num\.partitions=3"),
    ],
    ids=["everything", "brokers alone"],
)
def test_chart_matches_kubernetes_schemas(settings: tuple[str, ...], version: str):
    rendered = charted(*settings, release="orders")
    assert len(rendered) >= 4
    validate(rendered, version)
