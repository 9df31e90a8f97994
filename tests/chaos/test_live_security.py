"""Certificates, rules and users change while `verify eos` runs over TLS and SCRAM.

It is the short form of `python -m tests.chaos.live_security`, whose figures are in
docs/RELIABILITY.md.
"""

from pathlib import Path

import pytest

from tests.chaos.live_security import Plan, run
from tests.support import zookeeper

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server"),
]


def test_changes_of_security_hold_everywhere_and_refuse_the_load_nothing(tmp_path: Path) -> None:
    plan = Plan(certificates=2, rules=42, users=20, seconds=12, away_s=3)
    found = run(tmp_path, plan)
    assert found.wrong == []
    assert found.refused == []
    assert found.is_clean, found
    assert (found.certificates, found.rules, found.users) == plan[:3]
    assert found.replaced
    assert found.judged > found.judged_in_faults > 0
    assert found.figures["committed"] > 0
