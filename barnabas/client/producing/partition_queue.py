"""The queue of one partition in the producer: batches, sequence numbers, retries (KIP-98).

The queue makes decisions only, it does no I/O. An idempotent queue keeps up to five batches in
flight. When one of them fails, the queue waits for the responses to the others, then sends again
from the first batch on, one at a time. So no batch overtakes another, and the broker recognises a
batch that it already has by its sequence number.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import MAX_SEQUENCE, read_header
from barnabas.protocol.records.record import BatchBuilder, Record, iter_records

if TYPE_CHECKING:
    import asyncio

MAX_IN_FLIGHT = 5
"""The number of batches that a broker remembers of each producer and partition."""
LAST_EPOCH = 2**15 - 2
CONCURRENT_BACKOFF = 0.02
"""Seconds until a retry after CONCURRENT_TRANSACTIONS: markers of the previous transaction are
missing, and are usually written within milliseconds."""
UNKNOWN_TOPIC_PATIENCE = 2.0

_UNKNOWN_TOPIC = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
_LOST_STATE = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
_PERHAPS_WRITTEN = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


class Delivered(NamedTuple):
    """The partition and offset of a delivered record; `offset` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A whole record batch of message format v2 with `count` records, compressed already.

    The sender sets the producer, the sequence and the CRC in `data`.
    """

    data: bytearray
    count: int


class BatchResult(Enum):
    """The result of a batch after a response."""

    DELIVERED = auto()
    RETRY = auto()
    FAILED = auto()


@dataclass(slots=True, eq=False)
class Batch:
    """A batch in the queue, and the futures of its records; times in s of the loop's clock."""

    queued_at: float
    encoded: BatchBuilder | EncodedBatch
    """The records so far, or the batch that is sent: of records, or of the application."""
    size: int
    """Bytes of the batch before compression."""
    delivered: "list[asyncio.Future[Delivered]]"
    """A future for each record, or one for a batch of the application."""
    deadline: float = math.inf
    identity: ProducerIdAndEpoch = NO_PRODUCER
    sequence: int = -1
    """The sequence of the first record, -1 without idempotence."""
    in_flight: bool = False
    sent_as: tuple[ProducerIdAndEpoch, int] = (NO_PRODUCER, -1)
    uncertain: bool = False
    """Whether the broker may have written the batch without a response that says so."""
    stamped: tuple[ProducerIdAndEpoch, int] | None = None
    """The producer and the sequence that stand in the bytes of the batch."""

    @property
    def count(self) -> int:
        """The number of records, i.e. of sequence numbers."""
        return self.encoded.count

    @property
    def is_renumbered(self) -> bool:
        """Whether the batch got another sequence since it was last sent."""
        return self.sent_as != (self.identity, self.sequence)

    @property
    def blocks_new_batches(self) -> bool:
        """Whether the batch must be answered or sent again before a new batch is sent."""
        return self.uncertain or not self.in_flight or self.is_renumbered


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a queue; sizes in bytes, times in s.

    A `transactional` queue never raises the producer epoch by itself.
    """

    batch_size: int = 512 * 1024
    linger: float = 0.0
    delivery_timeout: float = 120.0
    idempotent: bool = True
    transactional: bool = False


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The queued records and unfinished batches of a partition; times in s of the loop's clock."""

    topic: str
    partition: int
    limits: Limits
    pending: deque[Batch] = field(default_factory=deque)
    """Batches without a sequence number. Only the last one can get more records."""
    window: list[Batch] = field(default_factory=list)
    """Batches with a sequence number that are neither delivered nor failed."""
    identity: ProducerIdAndEpoch = NO_PRODUCER
    next_sequence: int = 0
    has_unresolved_sequences: bool = False
    """Whether a batch was given up that may be written: the next sequence is then unknown."""
    completed: int = 0
    """The number of futures that are done."""
    open: BatchBuilder | None = None
    """The records of the last pending batch, if it can get more."""
    batch_size: int = 0
    """The most bytes of a batch of several records, at most those of the limits."""
    retry_at: float = 0.0
    abandoned: list[Batch] = field(default_factory=list)
    """Batches that were given up for a new epoch.

    They may be written with the old epoch, so they must not be sent again.
    """
    _broker_has_state: bool = False
    """Whether the broker has a batch of this producer id.

    If not, it accepts any first sequence: a second batch could overtake a first that is refused.
    """
    _last_set: ProducerIdAndEpoch = NO_PRODUCER
    _backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        self.batch_size = self.limits.batch_size

    @property
    def is_busy(self) -> bool:
        return bool(self.pending or self.window)

    @property
    def unfinished(self) -> int:
        """The number of futures that are not done."""
        return sum(len(batch.delivered) for batch in (*self.pending, *self.window))

    @property
    def in_flight(self) -> int:
        """The number of batches in flight."""
        return sum(batch.in_flight for batch in self.window)

    @property
    def is_exhausted(self) -> bool:
        """Whether all epochs of the producer id are used up, so that a new id is needed."""
        return self.identity.epoch > LAST_EPOCH

    def append(self, batch: Batch) -> None:
        """Append a batch; more records may be added to `open` until it is sent."""
        self.open = batch.encoded if isinstance(batch.encoded, BatchBuilder) else None
        self.pending.append(batch)

    def set_producer(self, identity: ProducerIdAndEpoch) -> None:
        """Use this producer id and epoch for new batches; unfinished batches keep theirs."""
        if self._last_set == identity or (self.window and not self.is_exhausted):
            return
        self._last_set = identity
        if identity.producer_id != self.identity.producer_id:
            self._broker_has_state = False
        self._restart_sequences(identity)

    def next_batch(self, now: float, *, flushing: bool = False) -> Batch | None:
        """Return the batch to send now, or None; with `flushing` do not wait for more records."""
        if any(batch.blocks_new_batches for batch in self.window):
            # No new batch before the failed ones are resolved: the broker remembers only five.
            if now < self.retry_at or self.in_flight or self.is_exhausted:
                return None
            return _mark_in_flight(self.window[0])
        if not self.pending or not self._is_ready(now, flushing):
            return None
        if self.has_unresolved_sequences and not self.window:
            self._take_new_epoch()
        if self.is_exhausted:
            return None
        batch = self._cut_batch()
        self.window.append(batch)
        return _mark_in_flight(batch)

    def next_send_time(self) -> float | None:
        """Return when `next_batch` may have a batch; None if only a response can change that."""
        if self.window:
            return None if self.in_flight else self.retry_at
        return self.pending[0].queued_at + self.limits.linger if self.pending else None

    def complete(
        self, batch: Batch, code: ErrorCode, now: float, *, uncertain: bool = False
    ) -> BatchResult:
        """Process the response to a batch; `uncertain` if it may be written although it failed."""
        batch.in_flight = False
        batch.uncertain = batch.uncertain or uncertain or code in _PERHAPS_WRITTEN
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._remove_delivered(batch)
            return BatchResult.DELIVERED
        if not (batch.uncertain and batch.is_renumbered) and self._should_retry(batch, code, now):
            return BatchResult.RETRY
        self._end(batch)
        return BatchResult.FAILED

    def drop(self) -> list[Batch]:
        """Give up and return every batch that is not in flight."""
        dropped = [batch for batch in self.window if not batch.in_flight]
        if dropped:
            self.window = [batch for batch in self.window if batch.in_flight]
            self.has_unresolved_sequences = True
        dropped += self.pending
        self.pending.clear()
        self.open = None
        return dropped

    def take_abandoned(self) -> list[Batch]:
        """Remove and return the abandoned batches."""
        abandoned, self.abandoned = self.abandoned, []
        return abandoned

    # -- batches ---------------------------------------------------------------------------------

    def _is_ready(self, now: float, flushing: bool) -> bool:
        # While a batch is in flight the next one grows; a full one is sent at once.
        first = self.pending[0]
        if first.encoded is not self.open or first.size >= self.batch_size or flushing:
            return len(self.window) < (MAX_IN_FLIGHT if self._broker_has_state else 1)
        return not self.window and now >= first.queued_at + self.limits.linger

    def _cut_batch(self) -> Batch:
        batch = self.pending.popleft()
        if batch.encoded is self.open:
            self.open = None
        while batch.size > self.batch_size and len(batch.delivered) > 1:
            self.pending.appendleft(_split(batch))
        batch.deadline = batch.queued_at + self.limits.delivery_timeout
        batch.identity = self.identity
        batch.sequence = self.next_sequence if self.limits.idempotent else -1
        self.next_sequence = _advance(self.next_sequence, batch.count)
        return batch

    def _split(self, batch: Batch) -> None:
        """Split a batch into two, which together have the same sequence numbers."""
        rest = _split(batch)
        rest.deadline, rest.identity = batch.deadline, batch.identity
        if self.limits.idempotent:
            rest.sequence = _advance(batch.sequence, batch.count)
        self.window.insert(self.window.index(batch) + 1, rest)
        self.batch_size = batch.size

    # -- answers ---------------------------------------------------------------------------------

    def _should_retry(self, batch: Batch, code: ErrorCode, now: float) -> bool:
        if code in _LOST_STATE and self.limits.idempotent:
            if self.window[0] is not batch or batch.is_renumbered:
                return True
            if self.limits.transactional or now >= batch.deadline:
                return False
            self._take_new_epoch()
            return True
        if code in TOO_LARGE and len(batch.delivered) > 1 and not batch.uncertain:
            self._split(batch)
            return True
        if code in _UNKNOWN_TOPIC:
            batch.deadline = min(batch.deadline, now + UNKNOWN_TOPIC_PATIENCE)
        if not code.retriable or now >= batch.deadline:
            return False
        self._back_off(code, now)
        return True

    def _back_off(self, code: ErrorCode, now: float) -> None:
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.retry_at = now + CONCURRENT_BACKOFF
            return
        self.retry_at = now + self._backoff.failed()

    def _remove_delivered(self, batch: Batch) -> None:
        self._backoff.failures = 0
        self.has_unresolved_sequences = False
        self._broker_has_state = self.limits.idempotent
        at = self.window.index(batch)
        del self.window[at]
        if batch.is_renumbered:
            self._renumber(at, batch.sequence)

    def _end(self, batch: Batch) -> None:
        at = self.window.index(batch)
        del self.window[at]
        if batch.uncertain and not batch.is_renumbered:
            self.has_unresolved_sequences = True
        elif self.window[at:]:
            # The later batches leave a gap, and may still arrive with their old sequences.
            self._take_new_epoch()
        else:
            self._renumber(at, batch.sequence)

    def _renumber(self, at: int, sequence: int) -> None:
        if not self.limits.idempotent:
            return
        for batch in self.window[at:]:
            batch.identity, batch.sequence = self.identity, sequence
            sequence = _advance(sequence, batch.count)
        self.next_sequence = sequence

    def _take_new_epoch(self) -> None:
        if self.limits.transactional or not self.limits.idempotent:
            return
        self._restart_sequences(self.identity._replace(epoch=self.identity.epoch + 1))

    def _restart_sequences(self, identity: ProducerIdAndEpoch) -> None:
        lost = [batch for batch in self.window if batch.uncertain and not batch.in_flight]
        self.abandoned += lost
        self.window = [batch for batch in self.window if batch not in lost]
        self.identity = identity
        self.has_unresolved_sequences = False
        self._renumber(0, 0)


def _split(batch: Batch) -> Batch:
    """Move the second half of the records to another batch, and return it."""
    encoded = batch.encoded
    data = encoded.build() if isinstance(encoded, BatchBuilder) else encoded.data
    records = list(iter_records(data, 0, read_header(data)))
    half = len(records) // 2
    rest = _of_records(batch.queued_at, records[half:], batch.delivered[half:])
    first = _of_records(batch.queued_at, records[:half], batch.delivered[:half])
    batch.encoded, batch.size, batch.delivered = first.encoded, first.size, first.delivered
    batch.stamped = None
    return rest


def _of_records(
    queued_at: float, records: Sequence[Record], delivered: "list[asyncio.Future[Delivered]]"
) -> Batch:
    builder = BatchBuilder(records[0].timestamp)
    for each in records:
        builder.add(each.key, each.value, each.timestamp, each.headers)
    return Batch(queued_at, builder, builder.size, delivered)


def _mark_in_flight(batch: Batch) -> Batch:
    batch.in_flight = True
    batch.sent_as = batch.identity, batch.sequence
    return batch


def _advance(sequence: int, count: int) -> int:
    """Return the sequence `count` records later; after the highest sequence comes 0."""
    return (sequence + count) & MAX_SEQUENCE
