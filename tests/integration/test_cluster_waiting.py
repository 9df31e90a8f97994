"""Whoever waits for a lever to touch a request, while brokers go and come."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster
from barnabas.testing.cluster import Held
from tests.integration.one_request import in_thread

DEADLINE = 20.0
QUIET = 0.2
"""Seconds in which something would have happened that does not."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=2, processes=request.param) as cluster:
        yield cluster


def end(cluster: Cluster, broker: int) -> None:
    (cluster.kill if cluster._processes else cluster.stop_broker)(broker)


def never(cluster: Cluster) -> Held:
    """A lever that no request pulls."""
    return cluster.hold("DescribeCluster", client_id="nobody")


def test_the_end_of_one_broker_is_no_request_that_was_held(cluster: Cluster) -> None:
    held = never(cluster)
    waiting = in_thread(lambda: held.wait(DEADLINE))
    end(cluster, 2)
    with pytest.raises(TimeoutError):
        waiting.result(QUIET)
    end(cluster, 1)
    with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
        waiting.result(DEADLINE)


def test_a_lever_that_was_taken_away_is_not_waited_for(cluster: Cluster) -> None:
    held = never(cluster)
    waiting = in_thread(lambda: held.wait(DEADLINE))
    with pytest.raises(TimeoutError):
        waiting.result(QUIET)
    held.release()
    for waits in (waiting.result, held.wait):
        with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
            waits(DEADLINE)


def test_a_lever_without_any_broker_is_not_waited_for(cluster: Cluster) -> None:
    held = never(cluster)
    for broker in cluster.running:
        end(cluster, broker)
    with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
        held.wait(DEADLINE)
