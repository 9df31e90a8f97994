"""Faults of processes: killed, stopped, paused."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import HEALED_WITHIN_S, Trio
from tests.chaos.evidence import Evidence, who
from tests.chaos.load import PROBE


def leads_nothing(trio: Trio, node: int) -> None:
    """Waits until the controller has given its partitions to others."""
    trio.until(
        lambda: node not in trio.leaders(PROBE).values(),
        HEALED_WITHIN_S,
        lambda: f"broker {node} still leads: {trio.leaders(PROBE)}",
    )


@contextmanager
def killed(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """kill -9; again when its partitions have other leaders."""
    node = who(trio, told, role)
    told.strikes(node)
    code = trio.brokers[node].kill()
    told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    leads_nothing(trio, node)
    yield
    trio.brokers[node].start()


@contextmanager
def killed_and_back(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """kill -9, and at once again."""
    node = who(trio, told, role)
    told.strikes(node)
    epoch = trio.registered()[node]
    code = trio.brokers[node].kill()
    told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    trio.brokers[node].start()
    yield
    trio.until(lambda: trio.registered().get(node, epoch) != epoch, HEALED_WITHIN_S, str)


@contextmanager
def terminated(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """SIGTERM; again when it has ended."""
    node = who(trio, told, role)
    told.strikes(node)
    code = trio.brokers[node].terminate()
    told.saw(code == 0, f"broker {node} ended with {code} after SIGTERM")
    leads_nothing(trio, node)
    yield
    trio.brokers[node].start()


@contextmanager
def paused(trio: Trio, told: Evidence, role: str, seconds: float) -> Iterator[None]:
    node = who(trio, told, role)
    told.strikes(node)
    epoch = trio.registered()[node]
    trio.brokers[node].pause()
    told.saw(True, f"every thread of broker {node} stood still")
    time.sleep(seconds)
    if seconds > 6:
        told.saw(node not in trio.registered(), f"the session of broker {node} expired")
    trio.brokers[node].resume()
    yield
    if seconds > 6:
        trio.until(lambda: trio.registered().get(node, epoch) != epoch, HEALED_WITHIN_S, str)


@contextmanager
def all_killed(trio: Trio, told: Evidence) -> Iterator[None]:
    """All at once; again at once."""
    told.strikes(*trio.brokers)
    for broker in trio.brokers.values():
        broker.signal(signal.SIGKILL)
    for node, broker in trio.brokers.items():
        code = broker.ended()
        told.saw(code == -signal.SIGKILL, f"broker {node} ended by signal {-code}")
    for broker in trio.brokers.values():
        broker.start()
    yield


@contextmanager
def rolled(trio: Trio, told: Evidence, rounds: int = 1) -> Iterator[None]:
    """Each is stopped and started again, the next when all are in sync."""
    told.strikes(*trio.brokers)
    for _ in range(rounds):
        for node, broker in trio.brokers.items():
            code = broker.terminate()
            told.saw(code == 0, f"broker {node} ended with {code} after SIGTERM")
            broker.start()
            trio.await_full()
    yield
