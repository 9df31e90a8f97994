"""Brokers of a test's cluster that do not start, do not stop, or end by themselves."""

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Cluster, ensemble

SHORT = 2.0
"""Seconds for what does not happen."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on nothing may take long."""
    return lambda: monkeypatch.setattr(ensemble, "TIMEOUT", SHORT)


def other_than(cluster: Cluster, broker: int) -> int:
    return next(each for each in cluster.broker_ids if each != broker)


def test_a_broker_that_did_not_start_in_time_starts_later(
    cluster: Cluster, impatient: Callable[[], None]
) -> None:
    broker = other_than(cluster, cluster.controller)
    cluster.stop_broker(broker)
    # The controller cannot tell it what it leads.
    cluster.partition([broker], [each for each in cluster.broker_ids if each != broker])
    impatient()
    with pytest.raises(TimeoutError):
        cluster.start_broker(broker)
    assert broker not in cluster.running
    cluster.heal()
    cluster.start_broker(broker)
    cluster.wait_until_in_sync(30)
