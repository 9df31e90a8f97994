"""What was done to a cluster holds for brokers that are started later."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Cluster
from tests.integration.one_request import code_of, create, in_thread
from tests.waiting import until

DEADLINE = 20.0
QUIET = 0.5
"""Seconds in which something would have happened that does not."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(processes=request.param) as cluster:
        yield cluster


def follower_of(cluster: Cluster, leader: int) -> int:
    """A broker that can be started without the one that leads."""
    return next(each for each in cluster.broker_ids if each not in (leader, cluster.controller))


def test_a_lever_touches_requests_of_a_broker_that_is_started_again(cluster: Cluster) -> None:
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


def test_a_broker_that_is_started_is_waited_for_too(cluster: Cluster) -> None:
    broker = follower_of(cluster, cluster.controller)
    refused = cluster.error("DescribeCluster", "INVALID_REQUEST")
    waiting = in_thread(lambda: refused.wait(DEADLINE))
    cluster.stop_broker(broker)
    cluster.start_broker(broker)
    assert code_of(cluster, broker) == ErrorCode.INVALID_REQUEST
    waiting.result(DEADLINE)


def test_a_lever_may_be_for_a_broker_that_does_not_run_and_for_none_that_is_not_there(
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
def test_a_line_stays_cut_when_its_broker_is_started_again(
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
    """A broker that reaches nobody, and its start, which waits for that."""
    broker = follower_of(cluster, cluster.controller)
    cluster.stop_broker(broker)
    cluster.isolate(broker)
    starting = in_thread(lambda: cluster.start_broker(broker))
    with pytest.raises(TimeoutError):
        starting.result(QUIET)
    return broker, starting


def test_a_broker_that_starts_hears_that_its_lines_are_whole(cluster: Cluster) -> None:
    broker, starting = started_alone(cluster)
    cluster.heal()
    starting.result(DEADLINE)
    until(lambda: broker in cluster.running)


def test_a_cluster_stops_while_a_broker_of_it_starts(cluster: Cluster) -> None:
    _, starting = started_alone(cluster)
    in_thread(cluster.stop).result(DEADLINE)
    assert starting.exception(DEADLINE) is not None
