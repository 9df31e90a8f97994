"""Moving a broker's own metadata into a store that several brokers share.

What belongs to the past run of brokers stays behind: ephemeral nodes, and notices of changes that
everybody reads anew at a start. The cluster's id comes last, so no broker takes a half for a whole.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from barnabas.broker.metadata import features, znodes
from barnabas.broker.metadata.store import Create, Delete, MetadataStore, NoNode, Op
from barnabas.broker.metadata.tree import Node, Tree
from barnabas.broker.metadata.znodes import ZnodeError

MARKER = "/metadata_copy"
"""Stands in the target, with the cluster's id, while it is incomplete."""
Grown = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""Of a topic, and its overrides while there was one broker: those it has from now on."""
_TOPIC_CONFIGS = znodes.config_path("topics", "")
_NOT_OURS = "zookeeper"
_PASSING = (f"{znodes.CONFIG_CHANGES}/", f"{znodes.LOG_DIR_EVENTS}/")
_MOST_OPS = 500
_MOST_BYTES = 500_000


class CopyRefused(Exception):
    """There is nothing to copy, or the target is not free."""


async def copy_metadata(source: Tree, target: MetadataStore, grown: Grown) -> int:
    """Create in an empty target what the source has, topics with their `grown` overrides; returns
    the number of nodes.

    An interrupted copy of the same cluster is taken away and made anew; one that is complete, and
    only nobody heard of it, is left as it is. Raises CopyRefused, StoreError.
    """
    node = source.find(znodes.CLUSTER_ID)
    if node is None:
        raise CopyRefused("there is no cluster in this metadata")
    batches = list(_batches(source, grown))
    if not await _is_complete(source, target):
        await _make_room(target, znodes.decode_cluster_id(node.data))
        for batch in batches:
            await target.multi(batch)
        await target.multi([Create(znodes.CLUSTER_ID, node.data), Delete(MARKER)])
    return sum(map(len, batches)) + 1


async def _is_complete(source: Tree, target: MetadataStore) -> bool:
    """Whether the target has everything, and no broker has begun with either side since: the first
    thing that it does is to raise the controller's epoch."""
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


async def _make_room(target: MetadataStore, cluster_id: str) -> None:
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


def _batches(source: Tree, grown: Grown) -> Iterator[list[Op]]:
    batch: list[Op] = []
    size = 0
    for path, node in source.items():
        if path in ("/", znodes.CLUSTER_ID) or node.ephemeral_owner or path.startswith(_PASSING):
            continue
        data = _translated(path, node, grown)
        if batch and (len(batch) == _MOST_OPS or size + len(data) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(Create(path, data))
        size += len(path) + len(data)
    if batch:
        yield batch


def _translated(path: str, node: Node, grown: Grown) -> bytes:
    """What stands there in the target."""
    try:
        if path.startswith(_TOPIC_CONFIGS):
            return _grown(path, node.data, grown)
        if znodes.is_state_path(path):
            return _to_be_judged(node.data)
        if path == znodes.FEATURE:
            # The target's transactions begin with low numbers, and clients remember the highest.
            epoch = features.epoch_of(node.data, node.mzxid)
            return znodes.encode_features(znodes.decode_features(node.data), epoch)
    except ZnodeError:
        # As little as a broker can say what it means.
        return node.data
    return node.data


def _grown(path: str, data: bytes, grown: Grown) -> bytes:
    overrides = znodes.decode_config(data)
    values = grown(znodes.config_name(path.removeprefix(_TOPIC_CONFIGS)), overrides)
    return data if values == overrides else znodes.encode_config(dict(values))


def _to_be_judged(data: bytes) -> bytes:
    """A partition's state without the zxid: by the numbers of another store it would cover
    registrations that nobody has judged. Who reads it without takes the time of the copy."""
    state = znodes.decode_state(data, 0)
    return znodes.encode_state(replace(state, judged_until=znodes.NEVER_JUDGED))
