"""The checks of refused producers and of denied topics."""

import pytest

from tests.unit.verify.histories import Cluster, names, spoilt


@pytest.mark.parametrize("err", ["PRODUCER_FENCED", "OUT_OF_ORDER_SEQUENCE_NUMBER"])
def test_refused_producer_without_reason_is_an_anomaly(err: str) -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1", told=err)
    cluster.finish()
    assert "unjust-refusal" in names(cluster.events())


def test_fenced_producer_may_be_refused() -> None:
    cluster = Cluster()
    cluster.init("w")
    op = cluster.history.invoke("other", "init", {"id": "w"})
    cluster.history.ok(op, {"producer": [1, 1]})
    cluster.send("w", "w-1", told="PRODUCER_FENCED")
    cluster.finish()
    assert names(cluster.events()) == set()


@pytest.mark.parametrize(
    ("views", "found"),
    [
        pytest.param([(0, []), (0, ["t"])], set(), id="not yet known"),
        pytest.param([(0, ["t"]), (1, []), (1, ["t"])], set(), id="another broker is late"),
        pytest.param([(0, ["t"]), (0, []), (0, ["t"])], {"denied-topic"}, id="denied"),
    ],
)
def test_denied_known_topic_is_an_anomaly(
    views: list[tuple[int, list[str]]], found: set[str]
) -> None:
    cluster = Cluster()
    for node, known in views:
        value = {"node": node, "known": known, "unknown": [] if known else ["t"]}
        cluster.history.note("watcher", "topics", "info", value)
    cluster.finish()
    assert names(cluster.events()) == found


def test_refused_init_producer_id_is_an_anomaly() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1", told="fail")
    op = cluster.history.invoke("w", "init", {"id": "w"})
    cluster.history.fail(op, "INVALID_REQUEST")
    cluster.finish()
    assert names(cluster.events()) == {"unjust-refusal"}


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        pytest.param(0.001, set(), id="it has slept for longer than ids are kept"),
        pytest.param(60, {"unjust-refusal"}, id="it was there a moment ago"),
        pytest.param(None, {"unjust-refusal"}, id="the expiration of ids is unknown"),
    ],
)
def test_transactional_id_that_expires_too_early_is_an_anomaly(
    kept: float | None, found: set[str]
) -> None:
    cluster = Cluster()
    cluster.init("w")
    value = {"id": "w", "txn": "w-1", "at": ("t", 0), "records": [[None, "w:1", None]]}
    op = cluster.history.invoke("w", "send", value)
    cluster.history.fail(op, "INVALID_PRODUCER_ID_MAPPING")
    cluster.finish()
    events = spoilt(
        cluster.events(), lambda event: event.f == "run", lambda about: about.update(ids_kept=kept)
    )
    assert names(events) == found
