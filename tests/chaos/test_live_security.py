"""Certificates, rules and users change while `verify eos` runs over TLS and SCRAM."""

from pathlib import Path

from tests.chaos.live_security import run


def test_changes_of_security_hold_everywhere_and_disturb_no_transaction(tmp_path: Path) -> None:
    found = run(tmp_path, 8, 1, faults=False)
    assert found.faults == []
    assert found.verdict == "clean"
    assert found.certificates == 3, "one on each broker"
    assert found.changes >= 40
