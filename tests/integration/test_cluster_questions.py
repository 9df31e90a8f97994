"""Calls of a cluster before its first use, or with wrong arguments: a result or a plain error."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.testing import Cluster, calls
from tests.integration.assigned_topic import create
from tests.integration.one_request import in_thread
from tests.support.waiting import until

DEADLINE = 20.0


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
        (lambda c: c.stop_broker(9), "there is no broker 9"),
        (lambda c: c.kill(9), "there is no broker 9"),
        (lambda c: c.pause(9), "there is no broker 9"),
        (lambda c: c.resume(9), "there is no broker 9"),
        (lambda c: c.move_leader("orders", 0, 9), "there is no broker 9"),
        (lambda c: c.move_coordinator(9, group="g"), "there is no broker 9"),
        (lambda c: c.leader_of("none"), "there is no partition none-0"),
        (lambda c: c.leader_of("orders", 7), "there is no partition orders-7"),
        (lambda c: c.hold("Nope"), "there is no API Nope"),
        (lambda c: c.delay(999, 0.1), "there is no API 999"),
        (lambda c: c.hold("Produce", 0), "the number of the request is at least 1, not 0"),
        (lambda c: c.error("Produce", 9999), "there is no error 9999"),
        (lambda c: c.error("Produce", "NONE"), "there is no error NONE"),
        (lambda c: c.settings("dave"), "there is no user dave"),
        (lambda _: Cluster(brokers=0), "at least one broker, not 0"),
    ],
)
def test_error_of_a_missing_object_names_it(
    cluster: Cluster, ask: Callable[[Cluster], object], words: str
) -> None:
    """Some of these raised KeyError: 9, some NoNode, and some an exception without a message."""
    with pytest.raises(ValueError, match=words):
        ask(cluster)


@pytest.fixture
def leaderless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a cluster whose topic `lost` has no leader; its calls time out after 0.1 s."""
    with Cluster(brokers=2) as cluster:
        create(cluster.bootstrap_servers, "lost", 2)
        cluster.stop_broker(2)
        with monkeypatch.context() as patch:
            patch.setattr(calls, "TIMEOUT", 0.1)
            until(lambda: error_of(cluster))
            yield cluster


def error_of(cluster: Cluster) -> str:
    try:
        cluster.leader_of("lost")
    except TimeoutError as error:
        return str(error)
    return ""


def test_timeout_of_waiting_for_a_leader_names_the_partition(leaderless: Cluster) -> None:
    assert error_of(leaderless) == "no broker leads lost-0 within 0.1 s"


def test_leader_of_a_topic_that_is_deleted_meanwhile_is_an_error(
    leaderless: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(calls, "TIMEOUT", DEADLINE)
        waiting = in_thread(lambda: leaderless.leader_of("lost"))
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        admin = AdminClient({"bootstrap.servers": leaderless.bootstrap_servers})
        admin.delete_topics(["lost"])["lost"].result(DEADLINE)
        with pytest.raises(ValueError, match="there is no partition lost-0"):
            waiting.result(DEADLINE)


def test_cluster_before_its_start_has_no_addresses() -> None:
    for ask in (lambda c: c.bootstrap_servers, lambda c: c.address_of(1), lambda c: c.heal()):
        with pytest.raises(RuntimeError, match="this cluster does not run"):
            ask(Cluster())
