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
from barnabas.coordinator.postponed import Encoded
from barnabas.coordinator.transaction.ending import MARKED, EndTxn, Reply, event_of, reply_to
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_TIMEOUT_MS,
    TV2,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.partitions import AddPartitions, begun, joined
from barnabas.coordinator.transaction.records import FEW, TransactionRecord, key_of, template_of
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError

LEFT: Final = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Leaves a request to the general way."""
_new = tuple.__new__
_ONGOING = TransactionState.ONGOING
Hosted = HostedShard[TransactionTable, TransactionRecord]


def _shape(txn: TransactionMetadata) -> tuple[Any, ...]:
    _, producer_id, epoch, timeout_ms, _, state, partitions, _, last_epoch, *rest = txn
    distance = None if last_epoch < 0 else epoch - last_epoch
    return producer_id, timeout_ms, state, partitions, distance, rest


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
        txn = _new(
            TransactionMetadata,
            (
                self._id, producer_id, epoch, timeout_ms, now_ms, state, partitions, start_ms,
                last_epoch, *self._behind,
            ),
        )  # fmt: skip
        value = self._template.value(epoch, now_ms, start_ms, last_epoch)
        return _new(TransactionRecord, (self._id, txn, self._flexible)), (self._key, value)


class Shards(Protocol):
    """The transaction topic, as far as this broker leads it."""

    def partitions(self) -> int:
        """Return how many partitions it has, or will have."""
        ...

    def shard_of(self, transactional_id: str) -> Hosted | None:
        """Return the shard of an id, if this broker coordinates it. Raises KafkaError."""
        ...


def _nowhere() -> None:
    return None


class _Repeated:
    """A request about one transactional id that a client sends again and again."""

    __slots__ = ("_asked", "_clock", "_hosted", "_id", "_partitions", "_shards", "_total")

    def __init__(self, shards: Shards, clock: Clock, transactional_id: str) -> None:
        self._shards = shards
        self._partitions = shards.partitions
        self._clock = clock
        self._id = transactional_id
        self._total = 0
        """The partitions of the transaction topic when the shard was looked for."""
        self._hosted: Callable[[], Hosted | None] = _nowhere
        """A weak reference: the shard of an earlier leadership must not stay in memory."""
        self._asked: object = None
        """The shape, and what else the rules were asked for last."""

    def _quiet(self) -> Hosted | None:
        """Return the shard of the id, if it is led here and nothing there is on its way."""
        hosted, total = self._hosted(), self._partitions()
        if hosted is None or total != self._total or not hosted.serving:
            hosted = self._shards.shard_of(self._id)
            if hosted is None:
                return None
            self._total, self._hosted = total, ref(hosted)
        return hosted if hosted.is_quiet else None

    def _now(self) -> Instant:
        clock = self._clock
        return _new(Instant, (clock.now_ms(), int(clock.monotonic() * 1000)))


class RepeatedAdd(_Repeated):
    """AddPartitions that adds the same partitions to each transaction."""

    __slots__ = ("_request", "_step")

    def __init__(self, shards: Shards, clock: Clock, request: AddPartitions) -> None:
        super().__init__(shards, clock, request.transactional_id)
        self._request = request
        self._step: tuple[_Target, bool] | None = None
        """The state to which the step leads, and whether the step begins a transaction. None if the
        partitions are in the transaction already."""

    def add(self, producer: Producer) -> bool:
        """Add the partitions to the producer's transaction; return whether they are in it.

        If not, nothing has changed.
        """
        hosted = self._quiet()
        if hosted is None:
            return False
        table = hosted.shard.state
        entry = table.ids.get(self._id)
        if entry is None or (txn := entry.txn) is None:
            return False
        _, producer_id, epoch, timeout_ms, _, _, before, start_ms, last_epoch, *_ = txn
        if producer != (producer_id, epoch) or epoch > LAST_CLIENT_EPOCH:
            return False
        request = self._request
        try:
            asked = _shape(txn), table.transaction_version()
            if asked != self._asked:
                self._step = self._ask(table, entry, txn)
                self._asked = asked
            if request.connection is not None and table.settings.fences_older_connections:
                entry.admit(producer, request.connection)
            if self._step is None:
                if request.client_version:
                    entry.asked_about(request.partitions)
                return True
            now_ms, monotonic_ms = now = self._now()
            target, begins = self._step
            record, encoded = target.record(
                producer_id, epoch, now_ms, now_ms if begins else start_ms, last_epoch
            )
            if not hosted.put(record, encoded, now):
                return False
        except KafkaError:
            return False
        table.history.note(entry, now_ms, "begins" if begins else "adds", request.partitions)
        if begins:
            begun(table, entry, monotonic_ms + timeout_ms if timeout_ms != NO_TIMEOUT_MS else None)
        joined(table, entry, request, producer, before)
        return True

    def _ask(
        self, table: TransactionTable, entry: TransactionalId, txn: TransactionMetadata
    ) -> tuple[_Target, bool] | None:
        """Return what `_step` is for a state. Raises KafkaError if the request is refused, or left
        to the general way; nothing has changed then."""
        request = self._request
        entry.require_owner(request.principal)
        entry.require_free()
        entry.require(txn.producer)
        begins = txn.state is not _ONGOING
        if not begins and txn.partitions.issuperset(request.partitions):
            return None
        target = txn.with_partitions(request.partitions, request.client_version, 0)
        if len(target.partitions) > FEW:
            raise LEFT
        return _Target(table, target), begins


class RepeatedEnd(_Repeated):
    """EndTxn of transactions with the same partitions."""

    __slots__ = ("_bumps", "_completed", "_prepared", "_request")

    _prepared: _Target
    _completed: _Target

    def __init__(self, shards: Shards, clock: Clock, request: EndTxn) -> None:
        super().__init__(shards, clock, request.transactional_id)
        self._request = request
        self._bumps = request.client_version >= TV2

    def end(self, producer: Producer, committed: bool) -> Producer | None:
        """Commit or abort the producer's transaction; return the producer to go on with.

        If it returns None, nothing has changed.
        """
        hosted = self._quiet()
        if hosted is None:
            return None
        table = hosted.shard.state
        entry = table.ids.get(self._id)
        if entry is None or (txn := entry.txn) is None:
            return None
        _, producer_id, epoch, _, _, _, partitions, start_ms, last_epoch, *_ = txn
        if producer != (producer_id, epoch) or epoch >= LAST_CLIENT_EPOCH:
            return None
        try:
            asked = _shape(txn), committed, table.transaction_version()
            if asked != self._asked:
                self._ask(table, entry, txn, committed)
                self._asked = asked
            if not self._bumps and table.settings.fences_older_connections:
                entry.admit(producer, self._request.connection)
            if self._bumps:
                epoch, last_epoch = epoch + 1, epoch
            now_ms, _ = now = self._now()
            record, encoded = self._prepared.record(
                producer_id, epoch, now_ms, start_ms, last_epoch
            )
            if not hosted.put(record, encoded, now):
                return None
        except KafkaError:
            return None
        table.history.note(entry, now_ms, event_of(committed))
        following = _new(Producer, (producer_id, epoch))
        version = self._request.client_version
        markers = self._id, following, committed, partitions, version
        if table.send_markers(_new(Markers, markers)):
            record, encoded = self._completed.record(
                producer_id, epoch, now_ms, start_ms, last_epoch
            )
            try:
                hosted.put(record, encoded, now, postpones=True)
            except KafkaError:
                table.marked(self._id, following)
            else:
                table.history.note(entry, now_ms, MARKED)
                table.free(self._id)
        return following

    def _ask(
        self,
        table: TransactionTable,
        entry: TransactionalId,
        txn: TransactionMetadata,
        committed: bool,
    ) -> None:
        """Find the states to which the steps lead. Raises KafkaError if the request is refused, and
        for ends that are left to the general way."""
        request, partitions = self._request, txn.partitions
        entry.require_owner(request.principal)
        reply = reply_to(txn, txn.producer, committed, request.client_version)
        if reply is not Reply.DECIDE or not 0 < len(partitions) <= FEW:
            raise LEFT
        prepared = txn.prepared(committed, request.client_version, 0)
        states = prepared, prepared.completed(0)
        self._prepared, self._completed = [_Target(table, each) for each in states]
