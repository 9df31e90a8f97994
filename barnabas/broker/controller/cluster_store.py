"""The cluster in the metadata store, as the controller reads it, and writes it guarded by its
epoch."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Final, TypeVar

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.followed_nodes import read_all
from barnabas.broker.cluster.znodes import NEVER_JUDGED, BrokerInfo, LeaderAndIsr, ZnodeError
from barnabas.broker.controller.controller_election import Term
from barnabas.broker.controller.rules.cluster_state import (
    ClusterPartition,
    ClusterState,
    ClusterTopic,
)
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    CreateResult,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

MAX_OPS: Final = 1000
MAX_BYTES: Final = 512 * 1024
"""Limits of one transaction: ZooKeeper refuses more than a megabyte."""
MAX_GROUP_BYTES: Final = 900_000
"""Limit of a group of operations that must be written atomically."""
_OP_BYTES: Final = 100
"""Estimated overhead of an operation without its path and data; a generous bound."""

_log = get_logger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class ControllerMovedError(Exception):
    """Another broker is controller."""


class StaleStateError(Exception):
    """The controller's state differs from the store, so it has to load again.

    Causes are a write whose response was lost, and manual changes in the store.
    """


class ClusterStore:
    """The nodes of the cluster, for the controller of one term."""

    def __init__(self, store: MetadataStore, term: Term, slicer: Slicer) -> None:
        self.store = store
        self._slicer = slicer
        self._guard = Check(znodes.CONTROLLER_EPOCH, term.version)
        self._damaged: set[int] = set()
        """Zxids of damaged registrations that were logged already."""

    # -- reading ----------------------------------------------------------------------------------

    async def load(self) -> tuple[ClusterState, list[ClusterTopic]]:
        """Read the cluster, and the topics whose deletion is unfinished.

        Delete deletion marks without a topic: they would delete a later topic of that name. Raises
        ControllerMovedError, StaleStateError.
        """
        state = ClusterState()
        names = await self.store.children(znodes.TOPICS)
        for name, topic in zip(names, await self.each(self._topic, names), strict=True):
            if isinstance(topic, ClusterTopic):
                state.add(topic)
            else:
                self._leave_alone(state, name, topic)
        unread = list(state.partitions())
        for at, found in zip(unread, await self.each(self._state, unread), strict=True):
            if isinstance(found, ZnodeError):
                self._leave_alone(state, at.topic, found)
            elif found is not None and at.topic in state.topics:
                partition = state.partition(at)
                partition.state, partition.created_at = found
        state.brokers = await self.live_brokers()
        deleting = await self.store.children(znodes.DELETE_TOPICS)
        lost = set(deleting).difference(names)
        await self.commit([[Delete(znodes.delete_topic_path(name))] for name in sorted(lost)])
        return state, [state.topics[name] for name in deleting if name in state.topics]

    async def live_brokers(self) -> dict[int, BrokerInfo]:
        """Return a consistent snapshot of the registered brokers, by id.

        A snapshot is consistent when two reads in a row agree: it has every broker that registered
        before any broker in it. Decisions state up to which registration they knew
        (`judged_until`), so this is needed.
        """
        found = await self._look_at_brokers()
        while (again := await self._look_at_brokers()) != found:
            found = again
        return found

    async def _look_at_brokers(self) -> dict[int, BrokerInfo]:
        ids = znodes.broker_ids(await self.store.children(znodes.BROKER_IDS))
        found = await self.each(self._broker, ids)
        return {broker.id: broker for broker in found if broker is not None}

    async def each(self, read: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
        """Read all items; return results in order. A store in another process is read
        concurrently."""
        if self.store.session_timeout == inf:
            return [await read(item) async for item in self._slicer.each(items)]
        return [result async for _, result in read_all(list(items), read)]

    def _leave_alone(self, state: ClusterState, name: str, reason: ZnodeError) -> None:
        """Exclude a topic with a damaged node, so it cannot stop one controller after another.

        An unreadable partition state must not count as absent: any replica could become leader.
        """
        if name not in state.unreadable:
            _log.error("topic ignored: node damaged", topic=name, reason=str(reason))
            state.unreadable.add(name)
        if name in state.topics:
            state.remove(state.topics[name])
        state.names_taken.add(name)

    async def _topic(self, name: str) -> ClusterTopic | ZnodeError:
        data, _ = await self.store.get(znodes.topic_path(name))
        try:
            return ClusterTopic.of(name, znodes.decode_topic(data))
        except ZnodeError as error:
            return error

    async def _state(self, at: TopicPartition) -> tuple[LeaderAndIsr, int] | ZnodeError | None:
        try:
            data, stat = await self.store.get(znodes.state_path(at.topic, at.partition))
            state = znodes.decode_state(data, stat.version)
        except NoNode:
            return None
        except ZnodeError as error:
            return error
        if state.judged_until == NEVER_JUDGED:
            # A controller that wrote no `judged_until` knew all registrations long
            # before.
            state = replace(state, judged_until=stat.mzxid)
        return state, stat.czxid

    async def _broker(self, broker_id: int) -> BrokerInfo | None:
        try:
            data, stat = await self.store.get(znodes.broker_path(broker_id))
        except NoNode:
            # The broker left between the two reads; the watch on /brokers/ids will fire.
            return None
        try:
            return znodes.decode_broker(broker_id, data, stat.czxid)
        except ZnodeError as error:
            if stat.czxid not in self._damaged:
                self._damaged.add(stat.czxid)
                _log.error("broker ignored: registration damaged", reason=str(error))
            return None

    # -- writing ----------------------------------------------------------------------------------

    async def commit(self, groups: Sequence[Sequence[Op]]) -> list[OpResult]:
        """Write groups of operations in bounded transactions; return the last result of each group.

        A group is never split, but several groups may need several transactions: a successor must
        be able to complete what is missing. Raises ControllerMovedError, StaleStateError, and
        INVALID_REQUEST, with nothing written, if a group is larger than a remote store accepts.
        """
        await self._require_room(groups)
        results: list[OpResult] = []
        ops: list[Op] = [self._guard]
        last: list[int] = []
        size = 0
        async for group in self._slicer.each(groups):
            added = _size(group)
            if last and (len(ops) + len(group) > MAX_OPS or size + added > MAX_BYTES):
                results += await self._transact(ops, last)
                ops, last, size = [self._guard], [], 0
            ops += group
            last.append(len(ops) - 1)
            size += added
        if last:
            results += await self._transact(ops, last)
        return results

    async def _require_room(self, groups: Sequence[Sequence[Op]]) -> None:
        if self.store.session_timeout == inf:
            return
        async for group in self._slicer.each(groups):
            if _size(group) > MAX_GROUP_BYTES:
                text = "A topic's partitions and configuration may take 900,000 bytes at most."
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    async def _transact(self, ops: Sequence[Op], last: Sequence[int]) -> list[OpResult]:
        try:
            done = await self.store.multi(ops)
        except (BadVersion, NoNode, NodeExists, NotEmpty) as cause:
            if cause.path == znodes.CONTROLLER_EPOCH:
                raise ControllerMovedError from cause
            raise StaleStateError(repr(cause)) from cause
        return [done[index] for index in last]


def first_state(at: TopicPartition, decision: LeaderAndIsr) -> list[Op]:
    """Return the operations that create a partition's nodes with its first leader."""
    return [
        Create(znodes.partition_path(at.topic, at.partition)),
        Create(znodes.state_path(at.topic, at.partition), znodes.encode_state(decision)),
    ]


def next_state(at: TopicPartition, partition: ClusterPartition, decision: LeaderAndIsr) -> list[Op]:
    """Return the operations that write a decision about a partition."""
    if partition.state is None:
        return first_state(at, decision)
    path = znodes.state_path(at.topic, at.partition)
    return [SetData(path, znodes.encode_state(decision), partition.state.partition_epoch)]


def install(partition: ClusterPartition, decision: LeaderAndIsr, written: OpResult) -> None:
    """Apply a written decision to the partition in memory, with the version of its node."""
    stat = written.stat if isinstance(written, CreateResult) else written
    assert stat is not None
    if partition.state is None:
        partition.created_at = stat.czxid
    partition.state = replace(decision, partition_epoch=stat.version)


def _size(group: Iterable[Op]) -> int:
    return sum(
        _OP_BYTES + len(op.path) + (len(op.data) if isinstance(op, Create | SetData) else 0)
        for op in group
    )
