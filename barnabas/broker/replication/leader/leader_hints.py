"""The current leader and its endpoint, sent with the errors that send clients to it (KIP-951)."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.cluster.cache import NO_LEADER, MetadataCache
from barnabas.broker.replication.partition import NO_EPOCH


class Leader(NamedTuple):
    """A leader's node id and epoch; -1 where unknown."""

    id: int
    epoch: int


class LeaderEndpoint(NamedTuple):
    """The address of a leader on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def current_leader(cache: MetadataCache, topic: str, index: int) -> Leader:
    """Return the leader that this broker knows of."""
    partition = cache.partition(topic, index)
    if partition is None:
        return Leader(NO_LEADER, NO_EPOCH)
    return Leader(partition.leader, partition.leader_epoch)


def endpoints(cache: MetadataCache, leaders: Iterable[int], listener: str) -> list[LeaderEndpoint]:
    """Return the addresses of the leaders that are alive, each once."""
    found = []
    for node_id in sorted(set(leaders)):
        broker = cache.brokers.get(node_id)
        address = cache.endpoint(node_id, listener)
        if broker is not None and address is not None:
            found.append(LeaderEndpoint(node_id, address.host, address.port, broker.rack))
    return found
