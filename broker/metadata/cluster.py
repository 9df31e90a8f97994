"""What every broker does first with the store: lay the ground, and say that it is alive."""

from contextlib import suppress

from barnabas.broker.metadata import features, znodes
from barnabas.broker.metadata.store import (
    Check,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    parent_of,
)
from barnabas.broker.metadata.znodes import BrokerInfo


class BrokerIdInUse(Exception):
    """Another broker that is alive has this id; `session_id` is its session with the store."""

    def __init__(self, broker_id: int, session_id: int) -> None:
        super().__init__(
            f"a broker with id {broker_id} is running: give this one another broker.id"
        )
        self.session_id = session_id


async def prepare_cluster(store: MetadataStore, new_cluster_id: str) -> str:
    """Create what every cluster has, in one transaction; returns the cluster's id.

    `new_cluster_id` becomes the id of a cluster that has none yet. Several brokers may do this at
    the same time.
    """
    while True:
        ops = await _missing(store)
        if await store.exists(znodes.CLUSTER_ID) is None:
            ops.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id)))
        if await store.exists(znodes.FEATURE) is None:
            # A cluster without the node never had transactions either: nothing of an older level.
            ops.append(Create(znodes.FEATURE, znodes.encode_features(features.NEW_CLUSTER)))
        if ops:
            try:
                await store.multi(ops)
            except NodeExists:
                continue
        data, _ = await store.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)


async def register_broker(store: MetadataStore, info: BrokerInfo, now_ms: int) -> BrokerInfo:
    """Make the broker known as alive until the session ends; returns it with its broker epoch.

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
                # Created before, and only the answer was lost.
                return info._replace(epoch=stat.czxid)
            raise BrokerIdInUse(info.id, stat.ephemeral_owner) from cause


async def catch_up_with_all(store: MetadataStore) -> None:
    """Have the reads that follow see all that any session has changed by now.

    A read may come from a server of the ensemble that lags behind. A transaction comes back from
    them all, and in its order, be it one that changes nothing.
    """
    with suppress(NoNode):
        await store.multi([Check(znodes.TOPICS)])


async def partition_exists(store: MetadataStore, topic: str, partition: int) -> bool:
    """Whether the cluster has the partition, asked of the store itself."""
    await catch_up_with_all(store)
    try:
        data, _ = await store.get(znodes.topic_path(topic))
    except NoNode:
        return False
    return partition in znodes.decode_topic(data).replicas


async def announce_log_dir_failure(store: MetadataStore, broker_id: int) -> None:
    """Tell the controller that replicas of this broker went offline with their directory."""
    await store.create(znodes.LOG_DIR_EVENT, znodes.encode_log_dir_event(broker_id), sequence=True)


async def _missing(store: MetadataStore) -> list[Op]:
    """Creations of the persistent nodes that are not there, parents first."""
    ops: dict[str, Op] = {}
    for path in znodes.PERSISTENT_PATHS:
        chain = []
        while path != "/" and path not in ops and await store.exists(path) is None:
            chain.append(path)
            path = parent_of(path)
        ops.update((each, Create(each)) for each in reversed(chain))
    return list(ops.values())
