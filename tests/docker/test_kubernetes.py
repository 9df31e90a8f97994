"""The manifests against Kubernetes' own schemas, from `pip install kubernetes-validate`."""

from pathlib import Path

import pytest

from tests.docker.files import ENSEMBLE, EXTERNAL, MANIFESTS, SECURE_MANIFESTS, kustomized

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

OLDEST = "1.28"
"""The first version with the label of a pod's number, from which the brokers' ids are taken."""
NEWEST = "1.35"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("components", [(), (EXTERNAL, ENSEMBLE)], ids=["plain", "components"])
@pytest.mark.parametrize("base", [MANIFESTS, SECURE_MANIFESTS], ids=lambda base: base.name)
def test_manifests_match_kubernetes_schemas(
    base: Path, components: tuple[str, ...], version: str, tmp_path: Path
):
    # Its schemas are 100 MB: too much to fetch in a plain test run.
    kubernetes = pytest.importorskip("kubernetes_validate")
    rendered = kustomized(tmp_path, base, *components)
    assert len(rendered) >= 8
    for manifest in rendered:
        kubernetes.validate(manifest, version, strict=True)
