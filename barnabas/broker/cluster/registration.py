"""The first operations of a broker on the store: base nodes, registration, advertised addresses."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from barnabas.broker.cluster import features, znodes
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo
from barnabas.broker.store.metadata_store import (
    Check,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    StoreError,
    parent_of,
)
from barnabas.config.broker import BrokerConfig
from barnabas.config.listeners import Address, Listener


class BrokerIdInUse(Exception):
    """Another live broker has this id; `session_id` is its session with the store."""

    def __init__(self, broker_id: int, session_id: int) -> None:
        super().__init__(
            f"a broker with id {broker_id} is running: give this one another broker.id"
        )
        self.session_id = session_id


async def prepare_cluster(store: MetadataStore, new_cluster_id: str) -> str:
    """Create the nodes that every cluster has, in one transaction; return the cluster id.

    A cluster without an id gets `new_cluster_id`. Several brokers may do this at once.
    """
    while True:
        ops = await missing_nodes(store, znodes.PERSISTENT_PATHS)
        if await store.exists(znodes.CLUSTER_ID) is None:
            ops.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id)))
        if await store.exists(znodes.FEATURE) is None:
            # A cluster without this node never had transactions, so it has no data of an older
            # level.
            ops.append(Create(znodes.FEATURE, znodes.encode_features(features.NEW_CLUSTER)))
        if ops:
            try:
                await store.multi(ops)
            except NodeExists:
                continue
        data, _ = await store.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)


class ClusterGone(StoreError):
    """The store has no cluster any more, or another one: it has lost its data."""


async def stored_cluster_id(store: MetadataStore) -> str | None:
    """Return the id of the cluster that the store has; None if it has none."""
    try:
        data, _ = await store.get(znodes.CLUSTER_ID)
    except NoNode:
        return None
    return znodes.decode_cluster_id(data)


async def require_same_cluster(store: MetadataStore, cluster_id: str) -> None:
    """Raise ClusterGone unless the store has this cluster."""
    found = await stored_cluster_id(store)
    if found is None:
        raise ClusterGone(
            f"the metadata store (ZooKeeper) came back empty: it has lost cluster {cluster_id}; "
            "restore its data"
        )
    if found != cluster_id:
        raise ClusterGone(
            f"the metadata store (ZooKeeper) came back with cluster {found} in place of cluster "
            f"{cluster_id}; restore its data"
        )


async def register_broker(store: MetadataStore, info: BrokerInfo, now_ms: int) -> BrokerInfo:
    """Create the broker's ephemeral node; return the broker with its epoch.

    Raises BrokerIdInUse.
    """
    path = znodes.broker_path(info.id)
    while True:
        try:
            created = await store.create(path, znodes.encode_broker(info, now_ms), ephemeral=True)
            return info._replace(epoch=created.stat.czxid)
        except NodeExists as cause:
            stat = await store.exists(path)
            if stat is None:
                continue
            if stat.ephemeral_owner == store.session_id:
                # An earlier call created it and its response was lost.
                return info._replace(epoch=stat.czxid)
            raise BrokerIdInUse(info.id, stat.ephemeral_owner) from cause


async def catch_up_with_all(store: MetadataStore) -> None:
    """Make later reads see all changes that any session has made by now.

    A read may come from a server of the ensemble that lags behind. A transaction, even an empty
    one, is ordered after all earlier ones.
    """
    with suppress(NoNode):
        await store.multi([Check(znodes.TOPICS)])


class Epochs(NamedTuple):
    """The epochs that fence the controller's requests to a broker."""

    controller: int
    """Epoch of the newest controller; 0 if there was none."""
    broker: int
    """Epoch of the broker's registration; -1 if it is not registered."""


async def stored_epochs(store: MetadataStore, broker_id: int) -> Epochs:
    """Ask the store itself for the epochs. Raises StoreError."""
    await catch_up_with_all(store)
    registration = await store.exists(znodes.broker_path(broker_id))
    try:
        data, _ = await store.get(znodes.CONTROLLER_EPOCH)
        controller = znodes.decode_controller_epoch(data)
    except NoNode:
        controller = 0
    return Epochs(controller, -1 if registration is None else registration.czxid)


async def partition_exists(store: MetadataStore, topic: str, partition: int) -> bool:
    """Ask the store itself whether the cluster has the partition."""
    await catch_up_with_all(store)
    try:
        data, _ = await store.get(znodes.topic_path(topic))
    except NoNode:
        return False
    return partition in znodes.decode_topic(data).replicas


async def announce_log_dir_failure(store: MetadataStore, broker_id: int) -> None:
    """Tell the controller that a log directory failed, and with it replicas of this broker."""
    await store.create(znodes.LOG_DIR_EVENT, znodes.encode_log_dir_event(broker_id), sequence=True)


async def missing_nodes(store: MetadataStore, paths: Iterable[str]) -> list[Op]:
    """Return creations of the nodes that are missing, parents first."""
    ops: dict[str, Op] = {}
    for path in paths:
        chain = []
        while path != "/" and path not in ops and await store.exists(path) is None:
            chain.append(path)
            path = parent_of(path)
        ops.update((each, Create(each)) for each in reversed(chain))
    return list(ops.values())


def bootstrap_address(config: BrokerConfig, hostname: str, ports: Mapping[str, int]) -> Address:
    """Return the `bootstrap.servers` value for clients of the first listener."""
    first = config.resolved_listeners()[0]
    return _reachable(first, first.advertised or first.address, hostname, ports)


def advertised_endpoints(
    config: BrokerConfig, hostname: str, ports: Mapping[str, int]
) -> tuple[BrokerEndpoint, ...]:
    """Return the advertised address of each listener; `ports` are the bound ones, by name."""
    return tuple(
        BrokerEndpoint(each.name, each.protocol, address.host, address.port)
        for each in config.resolved_listeners()
        if each.advertised is not None
        for address in (_reachable(each, each.advertised, hostname, ports),)
    )


def _reachable(
    listener: Listener, address: Address, hostname: str, ports: Mapping[str, int]
) -> Address:
    return Address(address.host or hostname, address.port or ports[listener.name])
