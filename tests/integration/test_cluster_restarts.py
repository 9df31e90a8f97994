"""Brokers of a test's cluster that do not start in time, do not stop, or end by themselves."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.faults.remote import BrokerDied
from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Cluster, calls, lifecycle
from barnabas.testing.processes import STOP_TIMEOUT, ProcessNode
from tests.integration.one_request import code_of
from tests.support.waiting import until

SHORT = 2.0
"""Seconds to wait for an event that must not happen."""


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that shortens the timeout of the cluster's lifecycle."""
    return lambda: monkeypatch.setattr(calls, "TIMEOUT", SHORT)


def other_than(cluster: Cluster, broker: int) -> int:
    return next(each for each in cluster.broker_ids if each != broker)


def test_a_broker_that_did_not_start_in_time_starts_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = other_than(cluster, cluster.controller)
    cluster.stop_broker(broker)
    # The controller cannot send it its leaderships.
    cluster.partition([broker], [each for each in cluster.broker_ids if each != broker])
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "_start_timeout", SHORT)
        with pytest.raises(TimeoutError):
            cluster.start_broker(broker)
    assert broker not in cluster.running
    cluster.heal()
    cluster.start_broker(broker)
    cluster.wait_until_in_sync(30)


@pytest.fixture
def with_one_paused(impatient: Callable[[], None]) -> Iterator[Cluster]:
    with Cluster(processes=True) as cluster:
        cluster.pause(1)
        impatient()
        yield cluster


def test_paused_broker_does_not_delay_faults_on_the_others(with_one_paused: Cluster) -> None:
    cluster = with_one_paused
    cluster.partition([1], [2, 3])
    cluster.partition([2], [1, 3], one_way=True)
    cluster.cut_clients(1, 2)
    cluster.heal()
    cluster.delay("Fetch", 0.1).remove()
    cluster.jump_transaction_clock(1)
    with cluster.error("DescribeCluster", "INVALID_REQUEST") as refused:
        assert code_of(cluster, 2) == ErrorCode.INVALID_REQUEST
        with pytest.raises(RuntimeError, match="broker 1 is paused"):
            assert refused.touched
        refused.wait()
        cluster.kill(1)
        assert refused.touched == 1


def test_resumed_broker_applies_the_faults_set_while_it_was_paused(
    with_one_paused: Cluster,
) -> None:
    cluster = with_one_paused
    with cluster.error("DescribeCluster", "INVALID_REQUEST", broker=1) as refused:
        cluster.cut_clients(1)
        cluster.heal()
        cluster.resume(1)
        assert code_of(cluster, 1) == ErrorCode.INVALID_REQUEST
        assert refused.touched == 1


def processes_of(cluster: Cluster) -> dict[int, int]:
    """Return the process id of each broker."""
    found = {}
    for process in Path("/proc").iterdir():
        # The broker's standard error goes to a file in the cluster's directory.
        with suppress(OSError, ValueError):
            log = (process / "fd" / "2").readlink()
            if log.parent == cluster._directory:
                found[int(log.stem.removeprefix("broker-"))] = int(process.name)
    return found


@pytest.fixture
def with_one_dead() -> Iterator[Cluster]:
    with Cluster(processes=True) as cluster:
        os.kill(processes_of(cluster)[3], signal.SIGKILL)
        until(lambda: 3 not in processes_of(cluster))
        yield cluster


def test_a_broker_that_ended_by_itself_does_not_run_and_can_be_started(
    with_one_dead: Cluster,
) -> None:
    cluster = with_one_dead
    cluster.partition([1], [2, 3])
    cluster.heal()
    cluster.hold("EndTxn").release()
    until(lambda: cluster.running == [1, 2])
    with pytest.raises(BrokerDied):
        cluster.stop_broker(3)
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert cluster.running == [1, 2, 3]
    assert len(processes_of(cluster)) == 3


def test_stop_reports_a_broker_that_ended_by_itself(with_one_dead: Cluster) -> None:
    with pytest.raises(BrokerDied):
        with_one_dead.stop()
    assert processes_of(with_one_dead) == {}


async def test_hanging_broker_is_killed_when_its_stop_is_cancelled(
    tmp_path: Path,
) -> None:
    node = ProcessNode({}, tmp_path / "broker-1.log")
    hangs = 'import time; input(); print(\'{"id": 0, "is": null}\', flush=True); time.sleep(600)'
    node.program = ["-c", hangs]
    await node.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await node.stop()
    with pytest.raises(BrokerDied):
        await node.ask("release")
    # The cluster does not rely on this timeout: the broker is killed before it.
    assert lifecycle.RELEASE_TIMEOUT + STOP_TIMEOUT < calls.TIMEOUT


def test_failed_stop_of_a_cluster_kills_its_brokers(
    impatient: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: ProcessNode) -> None:
        await asyncio.Event().wait()

    cluster = Cluster(processes=True).start()
    impatient()
    monkeypatch.setattr(ProcessNode, "release", hang)
    with pytest.raises(TimeoutError):
        cluster.stop()
    assert processes_of(cluster) == {}
