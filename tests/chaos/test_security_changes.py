"""Changes of security under load, in short; the whole is `tests.chaos.security_changes`."""

from pathlib import Path

import pytest

from tests.chaos.security_changes import (
    AUTHORITY_LASTS,
    Figures,
    change_protocol,
    rotate_certificates,
)
from tests.support import zookeeper

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server"),
]


def clean(figures: Figures) -> None:
    assert (figures["verdict"], figures["violations"], figures["problems"]) == ("clean", 0, {})
    assert figures["anomalies at rest"] == []
    assert figures["figures"]["committed"] > 0


def test_brokers_go_over_to_sasl_ssl_without_losing_a_transaction(tmp_path: Path) -> None:
    figures = change_protocol(tmp_path)
    clean(figures)
    assert all(transactions for _, transactions in figures["rolls"])


def test_rotated_certificates_lose_no_transaction(tmp_path: Path) -> None:
    """Another authority signs the last one."""
    clean(rotate_certificates(tmp_path, AUTHORITY_LASTS))
