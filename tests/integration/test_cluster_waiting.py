"""Waiting for a fault to hit a request, while brokers stop and start."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster
from barnabas.testing.cluster import Held
from tests.integration.one_request import in_thread

DEADLINE = 20.0
QUIET = 0.2
"""Seconds in which the event would have happened if it could."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=2, processes=request.param) as cluster:
        yield cluster


def end(cluster: Cluster, broker: int) -> None:
    (cluster.kill if cluster._processes else cluster.stop_broker)(broker)


def never(cluster: Cluster) -> Held:
    """Return a hold that no request matches."""
    return cluster.hold("DescribeCluster", client_id="absent")


def test_wait_for_a_hold_continues_until_no_broker_is_left(cluster: Cluster) -> None:
    held = never(cluster)
    waiting = in_thread(lambda: held.wait(DEADLINE))
    end(cluster, 2)
    with pytest.raises(TimeoutError):
        waiting.result(QUIET)
    end(cluster, 1)
    with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
        waiting.result(DEADLINE)


def test_wait_for_a_removed_fault_raises(cluster: Cluster) -> None:
    held = never(cluster)
    waiting = in_thread(lambda: held.wait(DEADLINE))
    with pytest.raises(TimeoutError):
        waiting.result(QUIET)
    held.release()
    for waits in (waiting.result, held.wait):
        with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
            waits(DEADLINE)


def test_wait_for_a_fault_without_running_brokers_raises(cluster: Cluster) -> None:
    held = never(cluster)
    for broker in cluster.running:
        end(cluster, broker)
    with pytest.raises(RuntimeError, match="no broker that runs has this lever"):
        held.wait(DEADLINE)
