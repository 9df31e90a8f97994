"""The manifests against Kubernetes' own schemas, from `pip install kubernetes-validate`."""

import pytest

from tests.docker.files import manifests

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

OLDEST = "1.28"
"""The first version with the label of a pod's number, from which the brokers' ids are taken."""
NEWEST = "1.35"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_match_kubernetes_schemas(version):
    # Its schemas are 100 MB: too much to fetch in a plain test run.
    kubernetes = pytest.importorskip("kubernetes_validate")
    for manifest in manifests():
        kubernetes.validate(manifest, version, strict=True)
