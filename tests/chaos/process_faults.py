"""Faults of processes: killed, stopped, paused."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import HEALED_WITHIN_S, ChaosCluster
from tests.chaos.evidence import Evidence, who
from tests.chaos.load import PROBE


def leads_nothing(cluster: ChaosCluster, node: int) -> None:
    """Wait until the controller has given its partitions to others."""
    cluster.until(
        lambda: node not in cluster.leaders(PROBE).values(),
        HEALED_WITHIN_S,
        lambda: f"broker {node} still leads: {cluster.leaders(PROBE)}",
    )


@contextmanager
def killed(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """kill -9; again when its partitions have other leaders."""
    node = who(cluster, told, role)
    told.strikes(node)
    code = cluster.brokers[node].kill()
    told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    leads_nothing(cluster, node)
    yield
    cluster.brokers[node].launch()


@contextmanager
def killed_and_back(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """kill -9, and at once again."""
    node = who(cluster, told, role)
    told.strikes(node)
    epoch = cluster.registered()[node]
    code = cluster.brokers[node].kill()
    told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    cluster.brokers[node].launch()
    yield
    cluster.until(lambda: cluster.registered().get(node, epoch) != epoch, HEALED_WITHIN_S, str)


@contextmanager
def terminated(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """SIGTERM; again when it has ended."""
    node = who(cluster, told, role)
    told.strikes(node)
    code = cluster.brokers[node].terminate()
    told.saw(code == 0, f"broker {node} ended with {code} after SIGTERM")
    leads_nothing(cluster, node)
    yield
    cluster.brokers[node].launch()


@contextmanager
def paused(cluster: ChaosCluster, told: Evidence, role: str, seconds: float) -> Iterator[None]:
    node = who(cluster, told, role)
    told.strikes(node)
    epoch = cluster.registered()[node]
    cluster.brokers[node].pause()
    told.saw(True, f"every thread of broker {node} stood still")
    time.sleep(seconds)
    if seconds > 6:
        told.saw(node not in cluster.registered(), f"the session of broker {node} expired")
    cluster.brokers[node].resume()
    yield
    if seconds > 6:
        cluster.until(lambda: cluster.registered().get(node, epoch) != epoch, HEALED_WITHIN_S, str)


@contextmanager
def all_killed(cluster: ChaosCluster, told: Evidence) -> Iterator[None]:
    """All at once; again at once."""
    told.strikes(*cluster.brokers)
    for broker in cluster.brokers.values():
        broker.signal(signal.SIGKILL)
    for node, broker in cluster.brokers.items():
        code = broker.wait_until_ended()
        told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    for broker in cluster.brokers.values():
        broker.launch()
    yield


@contextmanager
def rolled(cluster: ChaosCluster, told: Evidence, rounds: int = 1) -> Iterator[None]:
    """Each is stopped and started again, the next when all are in sync."""
    told.strikes(*cluster.brokers)
    for _ in range(rounds):
        for node, broker in cluster.brokers.items():
            code = broker.terminate()
            told.saw(code == 0, f"broker {node} ended with {code} after SIGTERM")
            broker.launch()
            cluster.wait_until_full()
    yield
