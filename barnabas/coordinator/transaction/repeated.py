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

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol
from weakref import ref

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.postponed import Encoded
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
_Step = tuple[object, Any, Any]
"""The shape, and what else the rules were asked for, and two parts of their answer."""


class _Target:
    """The states of one shape to which a step leads, and their records."""

    __slots__ = ("_behind", "_between", "_flexible", "_id", "_key", "_template")

    def __init__(self, table: TransactionTable, txn: TransactionMetadata) -> None:
        self._id = txn.transactional_id
        self._between = txn[3], txn[5], txn[6]
        self._behind = txn[9:]
        self._flexible = table.is_flexible(txn)
        self._key = key_of(self._id)
        self._template = template_of(txn, flexible=self._flexible)

    def record(
        self, producer_id: int, epoch: int, now_ms: int, start_ms: int, last_epoch: int
    ) -> tuple[TransactionRecord, Encoded]:
        """Return the record of the state with these epochs and times, and its bytes."""
        timeout_ms, state, partitions = self._between
        pack, head, middle, tail, has_last_epoch, end = self._template
        txn = _new(
            TransactionMetadata,
            (
                self._id, producer_id, epoch, timeout_ms, now_ms, state, partitions, start_ms,
                last_epoch, *self._behind,
            ),
        )  # fmt: skip
        behind = (last_epoch, end) if has_last_epoch else ()
        value = pack(head, epoch, middle, now_ms, start_ms, tail, *behind)
        return _new(TransactionRecord, (self._id, txn, self._flexible)), (self._key, value)


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


class _Repeated:
    """A request about one transactional id that a client sends again and again."""

    __slots__ = ("_changes", "_clock", "_hosted", "_id", "_metadata", "_shards", "_steps")

    def __init__(self, shards: Shards, clock: Clock, transactional_id: str) -> None:
        self._shards = shards
        self._metadata = shards.metadata
        self._clock = clock
        self._id = transactional_id
        self._changes = -1
        """The changes of the metadata when the shard was looked for."""
        self._hosted: Callable[[], Hosted | None] = _nowhere
        """A weak reference: the shard of an earlier leadership must not stay in memory."""
        self._steps: dict[frozenset[TopicPartition], _Step] = {}
        """By the partitions of the transaction."""

    def _find(self, named: Iterable[TopicPartition] = ()) -> Hosted | None:
        """Return the shard of the id, if it is led here, and all partitions are known."""
        changes, partition = self._metadata.topic_changes, self._metadata.partition
        hosted = self._shards.shard_of(self._id)
        if hosted is None or None in [partition(*each) for each in named]:
            return None
        self._changes, self._hosted = changes, ref(hosted)
        return hosted

    def _keep(self, partitions: frozenset[TopicPartition], step: _Step) -> _Step:
        if len(self._steps) >= MOST_STEPS:
            self._steps.clear()
        self._steps[partitions] = step
        return step


class RepeatedAdd(_Repeated):
    """AddPartitions that adds the same partitions to each transaction."""

    __slots__ = ("_request",)

    def __init__(self, shards: Shards, clock: Clock, request: AddPartitions) -> None:
        super().__init__(shards, clock, request.transactional_id)
        self._request = request

    def add(self, producer: Producer) -> bool:
        """Add the partitions to the producer's transaction; return whether they are in it.

        If not, nothing has changed.
        """
        request, hosted = self._request, self._hosted()
        if hosted is None or not hosted.serving or self._changes != self._metadata.topic_changes:
            hosted = self._find(request.partitions)
            if hosted is None:
                return False
        table, clock = hosted.shard.state, self._clock
        entry = table.ids.get(self._id)
        if entry is None or (txn := entry.txn) is None:
            return False
        _, producer_id, epoch, timeout_ms, _, state, before, start_ms, last_epoch, *rest = txn
        if producer != (producer_id, epoch) or epoch > LAST_CLIENT_EPOCH:
            return False
        distance = None if last_epoch < 0 else epoch - last_epoch
        version = table.transaction_version()
        asked = producer_id, timeout_ms, state, before, distance, rest, version
        try:
            step = self._steps.get(before)
            if step is None or step[0] != asked:
                step = self._keep(before, (asked, *self._ask(table, entry, txn)))
            _, target, begins = step
            connection = request.connection
            if (
                connection is not None
                and entry.latest_use != (producer, connection)
                and table.settings.fences_older_connections
            ):
                entry.admit(producer, connection)
            now_ms = clock.now_ms()
            now = _new(Instant, (now_ms, int(clock.monotonic() * 1000)))
            started_ms = now_ms if begins else start_ms
            record, encoded = target.record(producer_id, epoch, now_ms, started_ms, last_epoch)
            if not hosted.put(record, encoded, now):
                return False
        except KafkaError:
            return False
        table.history.note(entry, now_ms, "begins" if begins else "adds", request.partitions)
        joined(table, entry, request, producer, txn, now)
        return True

    def _ask(
        self, table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata
    ) -> tuple[_Target, bool]:
        """Return the state to which the step leads, and whether a transaction begins.

        Raises KafkaError if the request is refused, and for steps that are left to the general way;
        nothing has changed then.
        """
        request = self._request
        entry.require_owner(request.principal)
        entry.require_free()
        entry.require(txn.producer)
        target = txn.with_partitions(request.partitions, request.client_version, 0)
        if len(target.partitions) > FEW or txn.partitions.issuperset(request.partitions):
            raise LEFT
        return _Target(table, target), txn.state is not _ONGOING


class RepeatedEnd(_Repeated):
    """EndTxn of transactions with the same partitions."""

    __slots__ = ("_bumps", "_request")

    def __init__(self, shards: Shards, clock: Clock, request: EndTxn) -> None:
        super().__init__(shards, clock, request.transactional_id)
        self._request = request
        self._bumps = request.client_version >= TV2

    def end(self, producer: Producer, committed: bool) -> Producer | None:
        """Commit or abort the producer's transaction; return the producer to go on with.

        If it returns None, nothing has changed.
        """
        request, hosted = self._request, self._hosted()
        if hosted is None or not hosted.serving or self._changes != self._metadata.topic_changes:
            hosted = self._find()
            if hosted is None:
                return None
        table, clock = hosted.shard.state, self._clock
        entry = table.ids.get(self._id)
        if entry is None or (txn := entry.txn) is None:
            return None
        _, producer_id, epoch, timeout_ms, _, state, partitions, start_ms, last_epoch, *rest = txn
        if producer != (producer_id, epoch) or epoch >= LAST_CLIENT_EPOCH:
            return None
        distance = None if last_epoch < 0 else epoch - last_epoch
        version = table.transaction_version()
        asked = producer_id, timeout_ms, state, partitions, distance, rest, version, committed
        following = producer
        try:
            step = self._steps.get(partitions)
            if step is None or step[0] != asked:
                step = self._keep(partitions, (asked, *self._ask(table, entry, txn, committed)))
            _, prepared, completed = step
            if self._bumps:
                epoch, last_epoch = epoch + 1, epoch
                following = _new(Producer, (producer_id, epoch))
            elif (
                entry.latest_use != (producer, request.connection)
                and table.settings.fences_older_connections
            ):
                entry.admit(producer, request.connection)
            now_ms = clock.now_ms()
            now = _new(Instant, (now_ms, int(clock.monotonic() * 1000)))
            record, encoded = prepared.record(producer_id, epoch, now_ms, start_ms, last_epoch)
            if not hosted.put(record, encoded, now):
                return None
        except KafkaError:
            return None
        table.history.note(entry, now_ms, COMMITS if committed else ABORTS)
        markers = self._id, following, committed, partitions, request.client_version
        if table.send_markers(_new(Markers, markers)):
            assert entry.events is not None
            noted = entry.events.noted
            noted.append((now_ms, MARKER_IN, partitions))
            record, encoded = completed.record(producer_id, epoch, now_ms, start_ms, last_epoch)
            try:
                is_complete = hosted.put(record, encoded, now, postpones=True)
            except KafkaError:
                is_complete = False
            if is_complete:
                noted.append((now_ms, MARKED, ()))
                table.free(self._id)
            else:
                table.marked(self._id, following)
        return following

    def _ask(
        self,
        table: TransactionTable,
        entry: TransactionalId,
        txn: TransactionMetadata,
        committed: bool,
    ) -> tuple[_Target, _Target]:
        """Return the states to which the steps lead. Raises KafkaError if the request is refused,
        and for ends that are left to the general way."""
        request, partitions = self._request, txn.partitions
        entry.require_owner(request.principal)
        reply = reply_to(txn, txn.producer, committed, request.client_version)
        if reply is not EndTxnReply.DECIDE or not 0 < len(partitions) <= FEW:
            raise LEFT
        prepared = txn.prepared(committed, request.client_version, 0)
        return _Target(table, prepared), _Target(table, prepared.completed(0))
