"""The manifests beside Kubernetes' own schemas: `pip install kubernetes-validate` brings them."""

import pytest

from tests.docker.files import manifests

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

OLDEST = "1.28"
"""The first that has the label of a pod's number, on which the brokers' ids rest."""
NEWEST = "1.35"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_every_manifest(version):
    # Its schemas are 100 MB, which nobody should fetch who only runs the tests.
    kubernetes = pytest.importorskip("kubernetes_validate")
    for manifest in manifests():
        kubernetes.validate(manifest, version, strict=True)
