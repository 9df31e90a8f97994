"""The checks across brokers: C13 for replicas, C14, and reads from followers (C12)."""

from typing import Any

import pytest

from barnabas.verify.judge import judge
from tests.unit.verify.histories import Cluster, names

AT = ("t", 0)
BATCHES = [[0, 90, 0, 17], [1, 80, 0, 23], [2, 85, 1, 29]]
"""The batches of a replica, in two leader epochs."""


def with_replicas(*found: list[list[int]], to: int = 3, **options: Any) -> Cluster:
    cluster = Cluster(**options)
    cluster.finish()
    for node, batches in enumerate(found, 1):
        value = {"at": AT, "node": node, "batches": batches}
        cluster.history.note("run", "replica", "ok", value)
        end = {"at": AT, "node": node, "to": to, "wanted": 3, "error": ""}
        cluster.history.note("run", "replica-end", "info", end)
    return cluster


def recovered(*lacking: Any) -> Cluster:
    cluster = Cluster()
    cluster.finish()
    value = {"seconds": 60.0, "lacking": list(lacking)}
    cluster.history.note("run", "recovery", "info", value)
    return cluster


def test_equal_replicas_have_no_anomaly() -> None:
    assert names(with_replicas(BATCHES, BATCHES, BATCHES).events()) == set()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([*BATCHES[:1], [1, 80, 0, 24], *BATCHES[2:]], id="other bytes"),
        pytest.param([*BATCHES[:2], [2, 85, 0, 29]], id="other leader epoch"),
        pytest.param([*BATCHES[:1], *BATCHES[2:]], id="a batch less"),
        pytest.param([*BATCHES[:1], [1, 80, 0, -1], *BATCHES[2:]], id="damaged"),
    ],
)
def test_replicas_that_differ(other: list[list[int]]) -> None:
    events = with_replicas(BATCHES, BATCHES, other).events()
    assert names(events) == {"replica-divergence"}
    (anomaly,) = judge(events).anomalies
    assert "broker 3" in anomaly.text


def test_replicas_of_a_compacted_topic_may_differ() -> None:
    assert names(with_replicas(BATCHES, BATCHES[1:], compacted=True).events()) == set()


def test_replica_that_lacks_committed_batches() -> None:
    assert names(with_replicas(BATCHES, BATCHES[:2], to=2).events()) == {"replica-short"}


def test_recovered_cluster_has_no_anomaly() -> None:
    assert names(recovered().events()) == set()


@pytest.mark.parametrize(
    ("lacking", "name"),
    [
        ([AT, -1, [2], [1, 2, 3]], "no-leader"),
        ([AT, 3, [1, 2], [1, 2, 3]], "no-leader"),
        ([AT, 1, [1, 2], [1, 2, 3]], "under-replicated"),
        ([None, 2, [], []], "no-metadata"),
        ([None, -1, [], []], "no-metadata"),
    ],
)
def test_partition_without_leader_or_full_isr_at_the_deadline(
    lacking: list[Any], name: str
) -> None:
    assert names(recovered(lacking).events()) == {name}


@pytest.mark.parametrize(("node", "found"), [(None, {"watermark-regression"}), (2, set())])
def test_watermark_check_excludes_followers(node: int | None, found: set[str]) -> None:
    cluster = Cluster()
    for high in (5, 4):
        value = {"reader": "r", "isolation": "uncommitted", "assignment": 0, "at": AT, "from": 0}
        value |= {"to": 0, "records": [], "hw": high, "lso": high, "epoch": 1, "node": node}
        cluster.history.note("r", "read", "ok", value)
    cluster.finish()
    assert names(cluster.events()) == found


@pytest.mark.parametrize(
    ("epoch", "asked", "found"),
    [
        (1, 2.0, {"shown-uncommitted"}),
        # The leader may have been read before the follower showed the record.
        (1, 0.0, set()),
        # A new leader learns the high watermark later (KIP-207).
        (2, 2.0, set()),
    ],
)
def test_follower_that_shows_uncommitted_records(epoch: int, asked: float, found: set[str]) -> None:
    cluster = Cluster()
    cluster.init("w")
    value = cluster.send("w", None, AT)
    about = {"isolation": "uncommitted", "assignment": 0, "at": AT, "from": 0, "lso": 0}
    read = {**about, "reader": "f", "to": 1, "records": [[0, value]], "hw": 1, "epoch": 1}
    cluster.history.note("f", "read", "ok", {**read, "node": 2, "asked": 0.0})
    late = {**about, "reader": "r", "to": 0, "records": [], "hw": 0, "epoch": epoch}
    cluster.history.note("r", "read", "ok", {**late, "node": None, "asked": asked})
    cluster.finish()
    assert names(cluster.events()) == found
