"""Steps that repeat: a producer's transactions are mostly alike.

What a request makes of a logged state follows from the state's shape: all of it but its times, and
of its epochs the distance. An object here asks once, by the rules and the functions of every step,
what its request makes of one shape. While the state has that shape, it writes the same record with
other times and epochs, by the same append, replay and effects. It may only accept: where something
is not as it was, nothing has changed, and the general way decides.

The objects belong to requests that a connection remembers; nothing here is kept per id.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import ref

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.transaction.ending import (
    ABORTS,
    COMMITS,
    MARKED,
    MARKER_IN,
    EndTxn,
    EndTxnReply,
    reply_to,
)
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV2,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.partitions import AddPartitions, joined
from barnabas.coordinator.transaction.records import FEW, TransactionRecord, key_of, template_of
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

LEFT: Final = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Leaves a request to the general way."""
MOST_STEPS: Final = 8
"""The steps of a request that are remembered: clients write to several partitions in turn."""
_new = tuple.__new__
_ONGOING = TransactionState.ONGOING
Hosted = HostedShard[TransactionTable, TransactionRecord]
_Target = tuple[Any, ...]
"""The common parts of the states of one shape, to which a step leads, and of their records."""
_Step = tuple[object, _Target, _Target | None, str]
"""The shape, and what else the rules were asked for; the state to which the step leads, the state
behind the markers of its transaction, and the event."""


def _target(table: TransactionTable, txn: TransactionMetadata) -> _Target:
    key, producer_id, _, timeout_ms, _, state, partitions, *_ = txn
    flexible = table.is_flexible(txn)
    template = template_of(txn, flexible=flexible)
    same = key, producer_id, timeout_ms, state, partitions
    return *same, txn[9:], flexible, key_of(key), *template


def _write(
    hosted: Hosted,
    target: _Target,
    epoch: int,
    start_ms: int,
    last_epoch: int,
    now: Instant,
    postpones: bool = False,
) -> bool:
    """Write the record of the state with these epochs and times, as `HostedShard.put` does."""
    (
        transactional_id, producer_id, timeout_ms, state, partitions, behind, flexible, key,
        pack, head, middle, tail, has_last_epoch, end,
    ) = target  # fmt: skip
    now_ms = now[0]
    fields = (
        transactional_id, producer_id, epoch, timeout_ms, now_ms, state, partitions, start_ms,
        last_epoch,
    )  # fmt: skip
    if has_last_epoch:
        value = pack(head, epoch, middle, now_ms, start_ms, tail, last_epoch, end)
    else:
        value = pack(head, epoch, middle, now_ms, start_ms, tail)
    txn = _new(TransactionMetadata, fields + behind)
    # Not named: the replay only takes it apart.
    record: Any = transactional_id, txn, flexible
    return hosted.put(record, (key, value), now, postpones)


class Metadata(Protocol):
    """The metadata of the cluster."""

    topic_changes: int
    """The number of changes: while it is the same, so is everything else."""

    def partition(self, topic: str, index: int, /) -> object | None: ...


class Shards(Protocol):
    """The partitions of the transaction topic that this broker leads."""

    metadata: Metadata

    def shard_of(self, transactional_id: str) -> Hosted | None:
        """Return the shard of an id, if this broker coordinates it. Raises KafkaError."""
        ...


def _nowhere() -> None:
    return None


class RepeatedStep:
    """A request about one transactional id that a client sends again and again: it adds the same
    partitions to each transaction, or ends each."""

    __slots__ = (
        "_bumps", "_changes", "_connection", "_hosted", "_id", "_metadata", "_monotonic", "_named",
        "_request", "_shards", "_steps",
    )  # fmt: skip

    def __init__(self, shards: Shards, clock: Clock, request: AddPartitions | EndTxn) -> None:
        self._shards = shards
        self._metadata = shards.metadata
        self._monotonic = clock.monotonic
        self._request: Any = request
        self._id = request.transactional_id
        self._named = request.partitions if isinstance(request, AddPartitions) else ()
        self._bumps = isinstance(request, EndTxn) and request.client_version >= TV2
        """Whether each transaction has its own epoch, which this step ends."""
        self._connection = None if self._bumps else request.connection
        self._changes = -1
        """The changes of the metadata when the shard was looked for."""
        self._hosted: Callable[[], Hosted | None] = _nowhere
        """A weak reference: the shard of an earlier leadership must not stay in memory."""
        self._steps: dict[frozenset[TopicPartition], _Step] = {}
        """By the partitions of the transaction."""

    def again(
        self, known: tuple[Producer, bool] | None, now_ms: int, values: tuple[Any, ...] = ()
    ) -> tuple[int, ...] | None:
        """Take the step; return the next producer if it has another epoch, otherwise ().

        `known` is the producer, and whether the transaction is committed; without it `values` are
        producer id, epoch, and whether it is committed. If it returns None, nothing has changed.
        """
        producer, committed = known or (values[:2], values[2])
        hosted = self._hosted()
        if hosted is None or not hosted.serving or self._changes != self._metadata.topic_changes:
            hosted = self._find()
            if hosted is None:
                return None
        table = hosted.shard.state
        entry = table.ids.get(self._id)
        if entry is None or (txn := entry.txn) is None:
            return None
        _, producer_id, epoch, timeout_ms, _, state, partitions, start_ms, last_epoch, *rest = txn
        if producer != (producer_id, epoch) or epoch + self._bumps > LAST_CLIENT_EPOCH:
            return None
        distance = None if last_epoch < 0 else epoch - last_epoch
        version = table.transaction_version()
        asked = producer_id, timeout_ms, state, partitions, distance, rest, version, committed
        step = self._steps.get(partitions)
        try:
            if step is None or step[0] != asked:
                step = self._ask(table, entry, txn, asked)
            _, target, completed, event = step
            connection = self._connection
            if (
                connection is not None
                and entry.latest_use != (producer, connection)
                and table.settings.fences_older_connections
            ):
                entry.admit(_new(Producer, producer), connection)
        except KafkaError:
            return None
        if self._bumps:
            epoch, last_epoch = epoch + 1, epoch
        if state is not _ONGOING:
            start_ms = now_ms
        now = _new(Instant, (now_ms, int(self._monotonic() * 1000)))
        if not _write(hosted, target, epoch, start_ms, last_epoch, now):
            return None
        noted = table.history.note(entry, now_ms, event, self._named)
        following = _new(Producer, (producer_id, epoch))
        if completed is None:
            joined(table, entry, self._request, following, txn, now)
            return ()
        markers = self._id, following, committed, partitions, self._request.client_version
        if table.send_markers(_new(Markers, markers), now_ms):
            noted.append((now_ms, MARKER_IN, partitions))
            if _write(hosted, completed, epoch, start_ms, last_epoch, now, True):
                noted.append((now_ms, MARKED, ()))
                table.free(self._id)
            else:
                table.marked(self._id, following)
        return following if self._bumps else ()

    def _find(self) -> Hosted | None:
        """Return the shard of the id, if it is led here, and all partitions are known."""
        changes, partition = self._metadata.topic_changes, self._metadata.partition
        hosted = self._shards.shard_of(self._id)
        if hosted is None or None in [partition(*each) for each in self._named]:
            return None
        self._changes, self._hosted = changes, ref(hosted)
        return hosted

    def _ask(
        self,
        table: TransactionTable,
        entry: TransactionalId,
        txn: TransactionMetadata,
        asked: tuple[Any, ...],
    ) -> _Step:
        """Return the step from states of this shape, and remember it.

        Raises KafkaError if the request is refused, and for steps that are left to the general way;
        nothing has changed then.
        """
        request, partitions = self._request, txn.partitions
        entry.require_owner(request.principal)
        step: _Step
        if isinstance(request, EndTxn):
            committed, version = asked[-1], request.client_version
            reply = reply_to(txn, txn.producer, committed, version)
            if reply is not EndTxnReply.DECIDE or not 0 < len(partitions) <= FEW:
                raise LEFT
            target = txn.prepared(committed, version, 0)
            completed = _target(table, target.completed(0))
            step = asked, _target(table, target), completed, COMMITS if committed else ABORTS
        else:
            entry.require_free()
            entry.require(txn.producer)
            target = txn.with_partitions(request.partitions, request.client_version, 0)
            if len(target.partitions) > FEW or partitions.issuperset(request.partitions):
                raise LEFT
            event = "adds" if txn.state is _ONGOING else "begins"
            step = asked, _target(table, target), None, event
        if len(self._steps) >= MOST_STEPS:
            self._steps.clear()
        self._steps[partitions] = step
        return step
