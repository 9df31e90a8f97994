"""Faults of the network: cut, one-way, lossy, and connections that are reset."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.chaos.cluster import HEALED_WITHIN_S, ChaosCluster
from tests.chaos.evidence import Evidence, who
from tests.chaos.network import Network
from tests.chaos.process_faults import leads_nothing

_DROP = ("-j", "DROP")
PAST_SESSION_S = 9.0


def _network(cluster: ChaosCluster) -> Network:
    assert cluster.network is not None
    return cluster.network


@contextmanager
def _healed(cluster: ChaosCluster, told: Evidence, nodes: Sequence[int]) -> Iterator[None]:
    """Around a fault that has rules on some hosts: they dropped something, and are gone after."""
    network = _network(cluster)
    try:
        yield
        for node in nodes:
            dropped = network.stopped(node)
            told.saw(dropped > 0, f"the rules on host {node} matched {dropped} packets")
    finally:
        for node in nodes:
            network.heal(node)


def _others(cluster: ChaosCluster, node: int) -> list[int]:
    return [each for each in cluster.brokers if each != node]


@contextmanager
def cut_off(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """Cut one host off from all others, until its partitions have other leaders."""
    node = who(cluster, told, role)
    told.strikes(node)
    with _healed(cluster, told, [node]):
        for chain in ("INPUT", "OUTPUT"):
            _network(cluster).firewall(node, chain, *_DROP)
        leads_nothing(cluster, node)
    yield


@contextmanager
def minority(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """One broker on one side, two with ZooKeeper on the other; clients reach both sides."""
    node = who(cluster, told, role)
    told.strikes(node)
    network = _network(cluster)
    with _healed(cluster, told, [node]):
        for other in _others(cluster, node):
            network.firewall(node, "INPUT", "-s", network.address(other), *_DROP)
            network.firewall(node, "OUTPUT", "-d", network.address(other), *_DROP)
        _zookeeper_cut(cluster, node)
        leads_nothing(cluster, node)
    yield


@contextmanager
def one_way(cluster: ChaosCluster, told: Evidence, role: str, chain: str) -> Iterator[None]:
    """Drop all that a host receives (chain INPUT), or all that it sends (chain OUTPUT)."""
    node = who(cluster, told, role)
    told.strikes(node)
    with _healed(cluster, told, [node]):
        _network(cluster).firewall(node, chain, *_DROP)
        leads_nothing(cluster, node)
    yield


def _shrunk(cluster: ChaosCluster) -> int:
    return sum(len(each.in_sync) < len(each.replicas) for each in cluster.partitions().values())


@contextmanager
def bridge(cluster: ChaosCluster, told: Evidence) -> Iterator[None]:
    """Two brokers do not reach each other, until one has left an in-sync set of the other's; the
    third, clients and ZooKeeper reach both."""
    one, other = (node for node in cluster.brokers if node != told.controller)
    told.strikes(one, other)
    network = _network(cluster)
    with _healed(cluster, told, [one]):
        network.firewall(one, "INPUT", "-s", network.address(other), *_DROP)
        network.firewall(one, "OUTPUT", "-d", network.address(other), *_DROP)
        cluster.until(lambda: bool(_shrunk(cluster)), HEALED_WITHIN_S, str)
        told.saw(True, f"in-sync sets without the other: {_shrunk(cluster)}")
    yield


@contextmanager
def one_broker_from_another(cluster: ChaosCluster, told: Evidence) -> Iterator[None]:
    """Drop all that one broker receives from another; the other direction works."""
    one, other = (node for node in cluster.brokers if node != told.controller)
    told.strikes(one, other)
    network = _network(cluster)
    with _healed(cluster, told, [one]):
        network.firewall(one, "INPUT", "-s", network.address(other), *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


def _zookeeper_cut(cluster: ChaosCluster, node: int) -> None:
    port = str(cluster.zookeeper.port)
    network = _network(cluster)
    network.firewall(node, "OUTPUT", "-p", "tcp", "--dport", port, *_DROP)
    network.firewall(node, "INPUT", "-p", "tcp", "--sport", port, *_DROP)


@contextmanager
def without_zookeeper(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """Cut one broker off from ZooKeeper alone, until its session is over."""
    node = who(cluster, told, role)
    told.strikes(node)
    with _healed(cluster, told, [node]):
        _zookeeper_cut(cluster, node)
        cluster.until(lambda: node not in cluster.registered(), HEALED_WITHIN_S, str)
        told.saw(True, f"the session of broker {node} expired")
        leads_nothing(cluster, node)
    yield


@contextmanager
def without_clients(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """Clients do not reach one broker, which is well in every other way."""
    node = who(cluster, told, role)
    told.strikes(node)
    port = str(cluster.ports[node][0])
    with _healed(cluster, told, [node]):
        _network(cluster).firewall(node, "INPUT", "-p", "tcp", "--dport", port, *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


@contextmanager
def loss(
    cluster: ChaosCluster, told: Evidence, share: float, nodes: Sequence[int], chain: str
) -> Iterator[None]:
    """Packets are lost by chance, coming (INPUT) or going (OUTPUT)."""
    told.strikes(*nodes)
    by_chance = ("-m", "statistic", "--mode", "random", "--probability", str(share))
    with _healed(cluster, told, nodes):
        for node in nodes:
            _network(cluster).firewall(node, chain, *by_chance, *_DROP)
        time.sleep(PAST_SESSION_S)
    yield


@contextmanager
def narrow(cluster: ChaosCluster, told: Evidence, role: str, rate: str) -> Iterator[None]:
    """Limit the rate at which one broker sends."""
    node = who(cluster, told, role)
    told.strikes(node)
    _network(cluster).narrow(node, rate)
    try:
        time.sleep(PAST_SESSION_S)
    finally:
        waited = _network(cluster).widen(node)
    told.saw(waited > 0, f"what broker {node} said had to wait {waited} times")
    yield


@contextmanager
def resets(cluster: ChaosCluster, told: Evidence, role: str, times: int) -> Iterator[None]:
    """Every connection of a broker that says something is reset, once a second."""
    node = who(cluster, told, role)
    told.strikes(node)
    reset = ("-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
    for _ in range(times):
        with _healed(cluster, told, [node]):
            _network(cluster).firewall(node, "INPUT", *reset)
            cluster.until(lambda: _network(cluster).stopped(node) > 10, HEALED_WITHIN_S, str)
        time.sleep(0.9)
    yield
