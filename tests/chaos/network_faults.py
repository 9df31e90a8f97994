"""Faults of the network: cut, one-way, lossy, and connections that are reset."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.chaos.cluster import HEALED_WITHIN_S, Trio
from tests.chaos.evidence import Evidence, who
from tests.chaos.network import Network
from tests.chaos.process_faults import leads_nothing

_DROP = ("-j", "DROP")
PAST_SESSION_S = 9.0


def _network(trio: Trio) -> Network:
    assert trio.network is not None
    return trio.network


@contextmanager
def _healed(trio: Trio, told: Evidence, nodes: Sequence[int]) -> Iterator[None]:
    """Around a fault that has rules on some hosts: they dropped something, and are gone after."""
    network = _network(trio)
    try:
        yield
        for node in nodes:
            dropped = network.stopped(node)
            told.saw(dropped > 0, f"the rules on host {node} matched {dropped} packets")
    finally:
        for node in nodes:
            network.heal(node)


def _others(trio: Trio, node: int) -> list[int]:
    return [each for each in trio.brokers if each != node]


@contextmanager
def cut_off(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """One host hears and reaches nobody, until its partitions have other leaders."""
    node = who(trio, told, role)
    told.strikes(node)
    with _healed(trio, told, [node]):
        for chain in ("INPUT", "OUTPUT"):
            _network(trio).firewall(node, chain, *_DROP)
        leads_nothing(trio, node)
    yield


@contextmanager
def minority(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """One broker on one side, two with ZooKeeper on the other; clients reach both sides."""
    node = who(trio, told, role)
    told.strikes(node)
    network = _network(trio)
    with _healed(trio, told, [node]):
        for other in _others(trio, node):
            network.firewall(node, "INPUT", "-s", network.address(other), *_DROP)
            network.firewall(node, "OUTPUT", "-d", network.address(other), *_DROP)
        _zookeeper_cut(trio, node)
        leads_nothing(trio, node)
    yield


@contextmanager
def one_way(trio: Trio, told: Evidence, role: str, chain: str) -> Iterator[None]:
    """A host hears nothing (INPUT) or is not heard (OUTPUT)."""
    node = who(trio, told, role)
    told.strikes(node)
    with _healed(trio, told, [node]):
        _network(trio).firewall(node, chain, *_DROP)
        leads_nothing(trio, node)
    yield


def _shrunk(trio: Trio) -> int:
    return sum(len(each.in_sync) < len(each.replicas) for each in trio.partitions().values())


@contextmanager
def bridge(trio: Trio, told: Evidence) -> Iterator[None]:
    """Two brokers do not reach each other, until one has left an in-sync set of the other's; the
    third, clients and ZooKeeper reach both."""
    one, other = (node for node in trio.brokers if node != told.controller)
    told.strikes(one, other)
    network = _network(trio)
    with _healed(trio, told, [one]):
        network.firewall(one, "INPUT", "-s", network.address(other), *_DROP)
        network.firewall(one, "OUTPUT", "-d", network.address(other), *_DROP)
        trio.until(lambda: bool(_shrunk(trio)), HEALED_WITHIN_S, str)
        told.saw(True, f"in-sync sets without the other: {_shrunk(trio)}")
    yield


@contextmanager
def one_broker_from_another(trio: Trio, told: Evidence) -> Iterator[None]:
    """A broker does not hear one other, which hears it."""
    one, other = (node for node in trio.brokers if node != told.controller)
    told.strikes(one, other)
    network = _network(trio)
    with _healed(trio, told, [one]):
        network.firewall(one, "INPUT", "-s", network.address(other), *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


def _zookeeper_cut(trio: Trio, node: int) -> None:
    port = str(trio.zookeeper.port)
    network = _network(trio)
    network.firewall(node, "OUTPUT", "-p", "tcp", "--dport", port, *_DROP)
    network.firewall(node, "INPUT", "-p", "tcp", "--sport", port, *_DROP)


@contextmanager
def without_zookeeper(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """One broker does not reach ZooKeeper until its session is over; everybody else reaches it."""
    node = who(trio, told, role)
    told.strikes(node)
    with _healed(trio, told, [node]):
        _zookeeper_cut(trio, node)
        trio.until(lambda: node not in trio.registered(), HEALED_WITHIN_S, str)
        told.saw(True, f"the session of broker {node} expired")
        leads_nothing(trio, node)
    yield


@contextmanager
def without_clients(trio: Trio, told: Evidence, role: str) -> Iterator[None]:
    """Clients do not reach one broker, which is well in every other way."""
    node = who(trio, told, role)
    told.strikes(node)
    port = str(trio.ports[node][0])
    with _healed(trio, told, [node]):
        _network(trio).firewall(node, "INPUT", "-p", "tcp", "--dport", port, *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


@contextmanager
def loss(
    trio: Trio, told: Evidence, share: float, nodes: Sequence[int], chain: str
) -> Iterator[None]:
    """Packets are lost by chance, coming (INPUT) or going (OUTPUT)."""
    told.strikes(*nodes)
    by_chance = ("-m", "statistic", "--mode", "random", "--probability", str(share))
    with _healed(trio, told, nodes):
        for node in nodes:
            _network(trio).firewall(node, chain, *by_chance, *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


@contextmanager
def narrow(trio: Trio, told: Evidence, role: str, rate: str) -> Iterator[None]:
    """What one broker says goes over a slow line."""
    node = who(trio, told, role)
    told.strikes(node)
    _network(trio).narrow(node, rate)
    try:
        time.sleep(PAST_SESSION_S)
    finally:
        waited = _network(trio).widen(node)
    told.saw(waited > 0, f"what broker {node} said had to wait {waited} times")
    yield


@contextmanager
def resets(trio: Trio, told: Evidence, role: str, times: int) -> Iterator[None]:
    """Every connection of a broker that says something is reset, once a second."""
    node = who(trio, told, role)
    told.strikes(node)
    reset = ("-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
    for _ in range(times):
        with _healed(trio, told, [node]):
            _network(trio).firewall(node, "INPUT", *reset)
            trio.until(lambda: _network(trio).stopped(node) > 10, HEALED_WITHIN_S, str)
        time.sleep(0.9)
    yield
