"""Calls of a cluster before its first use, or with wrong arguments: a result or a plain error."""

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Cluster, lifecycle
from tests.integration.assigned_topic import create


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        create(cluster.bootstrap_servers, "orders", 1, 2)
        yield cluster


@pytest.mark.parametrize("named", [{"group": "g"}, {"transactional_id": "t"}], ids=str)
def test_coordinator_is_found_before_its_topic_exists(
    cluster: Cluster, named: dict[str, str]
) -> None:
    """The internal topic did not exist yet, and NoNode was raised."""
    before = cluster.coordinator_of(**named)
    assert before in cluster.broker_ids
    other = 3 - before
    cluster.move_coordinator(other, **named)
    assert cluster.coordinator_of(**named) == other


@pytest.mark.parametrize("named", [{}, {"group": "g", "transactional_id": "t"}], ids=str)
def test_coordinator_needs_either_a_group_or_a_transactional_id(
    cluster: Cluster, named: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="either a group or a transactional id"):
        cluster.coordinator_of(**named)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: c.in_sync_of("orders", 7), "there is no partition orders-7"),
        (lambda c: c.in_sync_of("none"), "there is no partition none-0"),
        (lambda c: c.move_leader("none", 0, 1), "there is no partition none-0"),
        (lambda c: c.move_leader("orders", 7, 1), "there is no partition orders-7"),
        (lambda c: c.error("Produce", "NOPE"), "there is no error NOPE"),
        (lambda c: c.hold("Produce", broker=9), "there is no broker 9"),
        (lambda c: c.isolate(9), "there is no broker 9"),
        (lambda c: c.partition([1], [9]), "there is no broker 9"),
        (lambda c: c.partition([9], [1], one_way=True), "there is no broker 9"),
        (lambda c: c.cut_clients(9), "there is no broker 9"),
        (lambda c: c.cut_store(9), "there is no broker 9"),
        (lambda c: c.expire_session(9), "there is no broker 9"),
        (lambda c: c.start_broker(9), "there is no broker 9"),
        (lambda c: c.address_of(9), "there is no broker 9"),
    ],
)
def test_error_of_a_missing_object_names_it(
    cluster: Cluster, ask: Callable[[Cluster], object], words: str
) -> None:
    """Some of these raised KeyError: 9, some NoNode, and some an exception without a message."""
    with pytest.raises(ValueError, match=words):
        ask(cluster)


def test_timeout_of_waiting_for_a_leader_names_the_partition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "TIMEOUT", 0.1)
    with pytest.raises(TimeoutError, match="no broker leads none-0"):
        cluster.leader_of("none")
