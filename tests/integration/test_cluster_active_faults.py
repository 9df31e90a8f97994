"""Faults of a cluster apply to brokers that are started later too."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Cluster
from tests.integration.one_request import code_of, create, in_thread
from tests.support.waiting import until

DEADLINE = 20.0
QUIET = 0.5
"""Seconds in which the event would have happened if it could."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(processes=request.param) as cluster:
        yield cluster


def follower_of(cluster: Cluster, leader: int) -> int:
    """Return a broker that is neither `leader` nor the controller, so that it can be started."""
    return next(each for each in cluster.broker_ids if each not in (leader, cluster.controller))


def test_fault_applies_to_requests_of_a_restarted_broker(cluster: Cluster) -> None:
    broker = follower_of(cluster, cluster.controller)
    with cluster.error("DescribeCluster", "INVALID_REQUEST", broker=broker) as refused:
        cluster.stop_broker(broker)
        cluster.start_broker(broker)
        assert code_of(cluster, broker) == ErrorCode.INVALID_REQUEST
        assert refused.touched == 1
    assert code_of(cluster, broker) == 0
    cluster.stop_broker(broker)
    cluster.start_broker(broker)
    assert code_of(cluster, broker) == 0


def test_wait_for_a_fault_includes_a_broker_started_later(cluster: Cluster) -> None:
    broker = follower_of(cluster, cluster.controller)
    refused = cluster.error("DescribeCluster", "INVALID_REQUEST")
    waiting = in_thread(lambda: refused.wait(DEADLINE))
    cluster.stop_broker(broker)
    cluster.start_broker(broker)
    assert code_of(cluster, broker) == ErrorCode.INVALID_REQUEST
    waiting.result(DEADLINE)


def test_fault_accepts_a_stopped_broker_and_refuses_an_unknown_one(
    cluster: Cluster,
) -> None:
    broker = follower_of(cluster, cluster.controller)
    cluster.stop_broker(broker)
    refused = cluster.error("DescribeCluster", "INVALID_REQUEST", broker=broker)
    cluster.start_broker(broker)
    assert code_of(cluster, broker) == ErrorCode.INVALID_REQUEST
    assert refused.touched == 1
    with pytest.raises(ValueError, match="there is no broker 4"):
        cluster.hold("DescribeCluster", broker=4)


def test_clients_stay_cut_off_from_a_broker_that_is_started_again(cluster: Cluster) -> None:
    broker = follower_of(cluster, cluster.controller)
    cluster.stop_broker(broker)
    cluster.cut_clients(broker)
    cluster.start_broker(broker)
    asked = in_thread(lambda: code_of(cluster, broker))
    with pytest.raises(TimeoutError):
        asked.result(QUIET)
    cluster.heal()
    assert asked.result(DEADLINE) == 0


@pytest.mark.parametrize(
    "cut",
    [
        lambda cluster, one, other: cluster.partition([one], [other]),
        lambda cluster, one, other: cluster.partition([one], [other], one_way=True),
        lambda cluster, _, other: cluster.isolate(other),
    ],
    ids=["partition", "one way", "isolate"],
)
def test_network_partition_outlives_a_restart_of_the_broker(
    cluster: Cluster, cut: Callable[[Cluster, int, int], None]
) -> None:
    leader = next(each for each in cluster.broker_ids if each != cluster.controller)
    follower = follower_of(cluster, leader)
    create(cluster, "t")
    cluster.move_leader("t", 0, leader)
    cluster.stop_broker(follower)
    fetches = cluster.delay("Fetch", 0.0, client_id=f"broker-{follower}", broker=leader)
    cut(cluster, follower, leader)
    cluster.start_broker(follower)
    with pytest.raises(TimeoutError):
        fetches.wait(QUIET)
    cluster.heal()
    fetches.wait(DEADLINE)
    cluster.wait_until_in_sync()


def started_alone(cluster: Cluster) -> tuple[int, "Future[None]"]:
    """Start a broker that cannot reach the others; return the future of its start, which blocks."""
    broker = follower_of(cluster, cluster.controller)
    cluster.stop_broker(broker)
    cluster.isolate(broker)
    starting = in_thread(lambda: cluster.start_broker(broker))
    with pytest.raises(TimeoutError):
        starting.result(QUIET)
    return broker, starting


def test_heal_reaches_a_broker_that_is_starting(cluster: Cluster) -> None:
    broker, starting = started_alone(cluster)
    cluster.heal()
    starting.result(DEADLINE)
    until(lambda: broker in cluster.running)


def test_a_cluster_stops_while_a_broker_of_it_starts(cluster: Cluster) -> None:
    _, starting = started_alone(cluster)
    in_thread(cluster.stop).result(DEADLINE)
    assert starting.exception(DEADLINE) is not None
