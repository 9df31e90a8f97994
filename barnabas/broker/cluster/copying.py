"""The copy of a single broker's metadata into a store that several brokers share.

The state of the last run is not copied: ephemeral nodes, and change notifications, since brokers
read everything at a start. The cluster id is written last, so no broker starts on a partial copy.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from barnabas.broker.cluster import acl_znodes, features, znodes
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.store.metadata_store import Create, Delete, MetadataStore, NoNode, Op
from barnabas.broker.store.tree import Tree, TreeNode

MARKER = "/metadata_copy"
"""Node in the target, with the cluster id, while the copy is incomplete."""
ClusterOverrides = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""A function from a topic and its overrides on a single broker to its overrides in a cluster."""
_TOPIC_CONFIGS = znodes.config_path("topics", "")
_NOT_OURS = "zookeeper"
_PASSING = tuple(
    f"{parent}/"
    for parent in (
        znodes.CONFIG_CHANGES,
        znodes.LOG_DIR_EVENTS,
        znodes.TOKEN_CHANGES,
        *acl_znodes.CHANGES.values(),
    )
)
_MOST_OPS = 500
_MOST_BYTES = 500_000


class CopyRefused(Exception):
    """The source is empty, or the target is in use."""


async def copy_metadata(
    source: Tree, target: MetadataStore, cluster_overrides: ClusterOverrides
) -> int:
    """Copy the source into an empty target, with `cluster_overrides`; return the number of nodes.

    An interrupted copy of the same cluster is deleted and repeated. A complete copy stays as it is:
    the response of an earlier call may have been lost. Raises CopyRefused, StoreError.
    """
    node = source.find(znodes.CLUSTER_ID)
    if node is None:
        raise CopyRefused("there is no cluster in this metadata")
    batches = list(_batches(source, cluster_overrides))
    if not await _is_complete(source, target):
        await _clear(target, znodes.decode_cluster_id(node.data))
        for batch in batches:
            await target.multi(batch)
        await target.multi([Create(znodes.CLUSTER_ID, node.data), Delete(MARKER)])
    return sum(map(len, batches)) + 1


async def _is_complete(source: Tree, target: MetadataStore) -> bool:
    """Return whether the target is complete and no broker has used either side since. The first
    action of a broker is to raise the controller epoch."""
    id_here, epoch_here = source.find(znodes.CLUSTER_ID), source.find(znodes.CONTROLLER_EPOCH)
    if id_here is None or epoch_here is None or await target.exists(MARKER) is not None:
        return False
    try:
        cluster_id, _ = await target.get(znodes.CLUSTER_ID)
        epoch, stat = await target.get(znodes.CONTROLLER_EPOCH)
        brokers = await target.children(znodes.BROKER_IDS)
    except NoNode:
        return False
    untouched = epoch == epoch_here.data and stat.version == 0 and not brokers
    return untouched and cluster_id == id_here.data


async def _clear(target: MetadataStore, cluster_id: str) -> None:
    present = [name for name in await target.children("/") if name != _NOT_OURS]
    if not present:
        await target.create(MARKER, cluster_id.encode())
        return
    marker = await target.exists(MARKER)
    if marker is None or (await target.get(MARKER))[0] != cluster_id.encode():
        raise CopyRefused(
            f"the target is not empty: it has {', '.join(sorted(present)[:5])}. Name another path "
            "in zookeeper.connect"
        )
    for name in present:
        if f"/{name}" != MARKER:
            await _remove(target, f"/{name}")


async def _remove(target: MetadataStore, path: str) -> None:
    for name in await target.children(path):
        await _remove(target, f"{path}/{name}")
    await target.delete(path)


def _batches(source: Tree, cluster_overrides: ClusterOverrides) -> Iterator[list[Op]]:
    batch: list[Op] = []
    size = 0
    for path, node in source.items():
        if path in ("/", znodes.CLUSTER_ID) or node.ephemeral_owner or path.startswith(_PASSING):
            continue
        data = _translated(path, node, cluster_overrides)
        if batch and (len(batch) == _MOST_OPS or size + len(data) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(Create(path, data))
        size += len(path) + len(data)
    if batch:
        yield batch


def _translated(path: str, node: TreeNode, cluster_overrides: ClusterOverrides) -> bytes:
    """Return the data of a node in the target."""
    try:
        if path.startswith(_TOPIC_CONFIGS):
            return _with_cluster_overrides(path, node.data, cluster_overrides)
        if znodes.is_state_path(path):
            return _without_zxid(node.data)
        if path == znodes.FEATURE:
            # Zxids of the target start low, and clients remember the highest feature epoch.
            epoch = features.epoch_of(node.data, node.mzxid)
            return znodes.encode_features(znodes.decode_features(node.data), epoch)
    except ZnodeError:
        # A damaged node is copied as it is.
        return node.data
    return node.data


def _with_cluster_overrides(path: str, data: bytes, cluster_overrides: ClusterOverrides) -> bytes:
    overrides = znodes.decode_config(data)
    values = cluster_overrides(znodes.config_name(path.removeprefix(_TOPIC_CONFIGS)), overrides)
    return data if values == overrides else znodes.encode_config(dict(values))


def _without_zxid(data: bytes) -> bytes:
    """Remove the zxid from a partition's state: in another store it would cover registrations that
    the controller has not seen. Readers use the time of the copy instead."""
    state = znodes.decode_state(data, 0)
    return znodes.encode_state(replace(state, judged_until=znodes.NEVER_JUDGED))
