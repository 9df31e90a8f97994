"""What the controller reads of the cluster, and how it writes: guarded by the epoch of its term."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Final, TypeVar

from barnabas.broker.controller.office import Term
from barnabas.broker.controller.state import ClusterState, Partition, Topic, TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
)
from barnabas.broker.metadata.znodes import NEVER_JUDGED, BrokerInfo, LeaderAndIsr, ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError

MAX_OPS: Final = 1000
MAX_BYTES: Final = 512 * 1024
"""Bounds of a transaction: ZooKeeper refuses those above a megabyte."""
MAX_GROUP_BYTES: Final = 900_000
"""Of what must be written at once."""
_OP_BYTES: Final = 100
"""What an operation costs beside its path and data, generously."""
_READS_AT_ONCE: Final = 100

_log = get_logger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Fenced(Exception):
    """Another broker is controller now."""


class Outdated(Exception):
    """This broker is still controller, but what it knew was not true: it has to load again.

    A write whose answer was lost, and somebody's hand in the store, look like this.
    """


class Register:
    """The cluster as it is written down, for the controller of one term."""

    def __init__(self, store: MetadataStore, term: Term) -> None:
        self.store = store
        self._guard = Check(znodes.CONTROLLER_EPOCH, term.version)
        self._damaged: set[int] = set()
        """Registrations that were complained of, by their zxid."""

    # -- reading ---------------------------------------------------------------------------------

    async def load(self) -> tuple[ClusterState, list[Topic]]:
        """The cluster, and the topics whose deletion is unfinished.

        Marks for deletion without a topic are taken away: they would wait for one of that name.
        Raises Fenced, Outdated.
        """
        state = ClusterState()
        names = await self.store.children(znodes.TOPICS)
        for name, topic in zip(names, await self.each(self._topic, names), strict=True):
            if isinstance(topic, Topic):
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
        """The brokers that were registered at one moment, by id: none of them later than another
        one that is left out.

        So it is where two looks agree. One look takes time, and by what it finds a decision says up
        to where it knew of registrations (`judged_until`).
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
        """The results in the same order; of a store that is not in this process, many at once."""
        if self.store.session_timeout == inf:
            return [await read(item) for item in items]
        results: list[R] = []
        waiting = list(items)
        for first in range(0, len(waiting), _READS_AT_ONCE):
            batch = waiting[first : first + _READS_AT_ONCE]
            results += await asyncio.gather(*(read(item) for item in batch))
        return results

    def _leave_alone(self, state: ClusterState, name: str, reason: ZnodeError) -> None:
        """One topic that somebody's hand has damaged must not stop one controller after the other.

        Nor may a partition's state that cannot be read be taken for none: anybody would lead.
        """
        if name not in state.unreadable:
            _log.error("topic left alone: a node of it is damaged", topic=name, reason=str(reason))
            state.unreadable.add(name)
        if name in state.topics:
            state.remove(state.topics[name])

    async def _topic(self, name: str) -> Topic | ZnodeError:
        data, _ = await self.store.get(znodes.topic_path(name))
        try:
            return Topic.of(name, znodes.decode_topic(data))
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
            # Of a controller that did not say; it will have known of those long before.
            state = replace(state, judged_until=stat.mzxid)
        return state, stat.czxid

    async def _broker(self, broker_id: int) -> BrokerInfo | None:
        try:
            data, stat = await self.store.get(znodes.broker_path(broker_id))
        except NoNode:
            # It went between the two reads; the watch tells.
            return None
        try:
            return znodes.decode_broker(broker_id, data, stat.czxid)
        except ZnodeError as error:
            if stat.czxid not in self._damaged:
                self._damaged.add(stat.czxid)
                _log.error("broker ignored: its registration is damaged", reason=str(error))
            return None

    # -- writing ---------------------------------------------------------------------------------

    async def commit(self, groups: Sequence[Sequence[Op]]) -> list[OpResult]:
        """Write in transactions of bounded size; returns the result of each group's last operation.

        No transaction splits a group. Groups may end up in several: what is left undone must be of
        the kind that a successor completes. Raises Fenced, Outdated; INVALID_REQUEST, with nothing
        written, where a group is more than a store that is elsewhere takes.
        """
        self._require_room(groups)
        results: list[OpResult] = []
        ops: list[Op] = [self._guard]
        last: list[int] = []
        size = 0
        for group in groups:
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

    def _require_room(self, groups: Sequence[Sequence[Op]]) -> None:
        if self.store.session_timeout < inf and any(
            _size(group) > MAX_GROUP_BYTES for group in groups
        ):
            text = "A topic's partitions and configuration may take 900,000 bytes at most."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    async def _transact(self, ops: Sequence[Op], last: Sequence[int]) -> list[OpResult]:
        try:
            done = await self.store.multi(ops)
        except (BadVersion, NoNode, NodeExists, NotEmpty) as cause:
            if cause.path == znodes.CONTROLLER_EPOCH:
                raise Fenced from cause
            raise Outdated(repr(cause)) from cause
        return [done[index] for index in last]


def first_state(at: TopicPartition, decision: LeaderAndIsr) -> list[Op]:
    """The nodes of a partition that gets its first leader, below those of its topic."""
    return [
        Create(znodes.partition_path(at.topic, at.partition)),
        Create(znodes.state_path(at.topic, at.partition), znodes.encode_state(decision)),
    ]


def next_state(at: TopicPartition, partition: Partition, decision: LeaderAndIsr) -> list[Op]:
    """What writes a decision about a partition down."""
    if partition.state is None:
        return first_state(at, decision)
    path = znodes.state_path(at.topic, at.partition)
    return [SetData(path, znodes.encode_state(decision), partition.state.partition_epoch)]


def install(partition: Partition, decision: LeaderAndIsr, written: OpResult) -> None:
    """A decision has become true at the version of its node."""
    stat = written.stat if isinstance(written, Created) else written
    assert stat is not None
    if partition.state is None:
        partition.created_at = stat.czxid
    partition.state = replace(decision, partition_epoch=stat.version)


def _size(group: Iterable[Op]) -> int:
    return sum(
        _OP_BYTES + len(op.path) + (len(op.data) if isinstance(op, Create | SetData) else 0)
        for op in group
    )
