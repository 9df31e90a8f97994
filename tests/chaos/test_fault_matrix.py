"""A part of the fault matrix on real processes; `python -m tests.chaos` is the whole of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cells import CELLS, QUICK, QUICK_NETWORK, named
from tests.chaos.cluster import PLAIN, ChaosCluster
from tests.chaos.network import why_not as why_no_network
from tests.chaos.running import at_rest, under_load
from tests.support import zookeeper

ENOUGH = 3_000
"""Transactions."""

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server"),
]


def struck(names: Sequence[str], directory: Path, at_least: int) -> dict[str, Any]:
    with ChaosCluster(directory / "cluster", PLAIN) as cluster:
        cells = [cell._replace(workload="pipeline") for cell in named(names)]
        # Bars of time are for machines that do nothing else.
        figures = under_load(cells, cluster, directory / "load", 0, at_least=at_least, calm_s=0.5)
        return {**figures, "at rest": at_rest(cluster)}


def clean(figures: dict[str, Any]) -> None:
    assert figures["anomalies"] == figures["at rest"]["anomalies"] == []
    assert figures["at rest"]["batches"] > figures["figures"]["committed"] > 0
    assert (figures["verdict"], figures["violations"]) == ("clean", 0)
    assert all(row["seen"] and row["faults"] for row in figures["cells"])
    assert [row["cell"] for row in figures["cells"] if row["client_errors"]] == []


def test_nothing_is_lost_twice_or_left_open_whoever_is_killed_paused_or_expires(
    tmp_path: Path,
) -> None:
    figures = struck(QUICK, tmp_path, ENOUGH)
    clean(figures)
    assert len(figures["cells"]) >= 8
    assert figures["figures"]["transactions"] >= ENOUGH


@pytest.mark.skipif(why_no_network() is not None, reason=str(why_no_network()))
def test_nothing_is_lost_twice_or_left_open_whatever_the_network_does(tmp_path: Path) -> None:
    clean(struck(QUICK_NETWORK, tmp_path, 0))


def test_cells_are_known_by_their_names() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
