"""The addresses by which others reach a broker: what was told, and what only the machine knows."""

from collections.abc import Mapping

from barnabas.broker.metadata.znodes import BrokerEndpoint
from barnabas.config.broker import BrokerConfig
from barnabas.config.listeners import Address, Listener


def bootstrap_address(config: BrokerConfig, hostname: str, ports: Mapping[str, int]) -> Address:
    """What a client of the first listener takes as `bootstrap.servers`."""
    first = config.resolved_listeners()[0]
    return _reachable(first, first.advertised or first.address, hostname, ports)


def advertised_endpoints(
    config: BrokerConfig, hostname: str, ports: Mapping[str, int]
) -> tuple[BrokerEndpoint, ...]:
    """What a broker tells the cluster of its listeners; `ports` are the bound ones, by name."""
    return tuple(
        BrokerEndpoint(each.name, each.protocol, address.host, address.port)
        for each in config.resolved_listeners()
        if each.advertised is not None
        for address in (_reachable(each, each.advertised, hostname, ports),)
    )


def _reachable(
    listener: Listener, told: Address, hostname: str, ports: Mapping[str, int]
) -> Address:
    return Address(told.host or hostname, told.port or ports[listener.name])
