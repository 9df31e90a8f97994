"""One partition's way to its leader: batches, sequences, retries, as pure decisions (KIP-98).

An idempotent lane keeps up to five batches under way. Once one of them fails, the lane waits for
the answers of the others and sends again from the first on, one at a time: so nothing overtakes,
and what the broker has already is known there by its sequence.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.records.record import Headers

if TYPE_CHECKING:
    import asyncio

MAX_IN_FLIGHT = 5
"""Batches of a producer that a broker remembers in each partition."""
LAST_EPOCH = 2**15 - 2
FIRST_BACKOFF = 0.05
MAX_BACKOFF = 1.0
CONCURRENT_BACKOFF = 0.02
"""How soon a transaction is asked for again whose predecessor lacks markers: they take ms."""
UNKNOWN_TOPIC_PATIENCE = 2.0

_UNKNOWN_TOPIC = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
_TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
_LOST_STATE = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
_PERHAPS_WRITTEN = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


class Delivered(NamedTuple):
    """Where a record went; `offset` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


class Waiting(NamedTuple):
    """A record that was handed in at `since`, in s of the loop's clock; the timestamp is in ms."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    size: int
    since: float
    delivered: "asyncio.Future[Delivered]"


class Fate(Enum):
    """What an answer made of a batch."""

    DELIVERED = auto()
    AGAIN = auto()
    FAILED = auto()


@dataclass(slots=True, eq=False)
class Batch:
    """Records that travel together; `sequence` is the first one's, -1 without idempotence."""

    records: list[Waiting]
    size: int
    deadline: float
    identity: Identity
    sequence: int
    flying: bool = False
    sent_as: tuple[Identity, int] = (NOBODY, -1)
    uncertain: bool = False
    """Whether the broker may have written it although it never said so."""

    @property
    def is_renumbered(self) -> bool:
        """Whether it was last sent under a sequence that is no longer its own."""
        return self.sent_as != (self.identity, self.sequence)

    @property
    def is_in_doubt(self) -> bool:
        """Whether it needs an answer, or another flight, before anything new is sent."""
        return self.uncertain or not self.flying or self.is_renumbered


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in s. A `transactional` lane never takes a new epoch by itself."""

    batch_size: int = 512 * 1024
    linger: float = 0.0
    delivery_timeout: float = 120.0
    idempotent: bool = True
    transactional: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """A partition's records on their way. Times are the loop's, in s."""

    topic: str
    partition: int
    limits: Limits
    waiting: deque[Waiting] = field(default_factory=deque)
    window: list[Batch] = field(default_factory=list)
    """Batches that have their sequence and not their end."""
    identity: Identity = NOBODY
    next_sequence: int = 0
    is_unresolved: bool = False
    """A batch was given up that may have been written: whether sequences go on is unknown."""
    appended: int = 0
    ended: int = 0
    """Records that came in, and those whose future has been told."""
    retry_at: float = 0.0
    waiting_size: int = 0
    """Bytes of the records that have no batch yet."""
    casualties: list[Batch] = field(default_factory=list)
    """Batches that a new epoch cost: they may be written under the old one, so never again."""
    _is_remembered: bool = False
    """Whether the broker has a batch of this producer id. Where it has none it takes any sequence
    for the first: a second batch could overtake a first that is refused."""
    _given: Identity = NOBODY
    _batch_size: int = 0
    _backoff: float = FIRST_BACKOFF

    def __post_init__(self) -> None:
        self._batch_size = self.limits.batch_size

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting or self.window)

    @property
    def flying(self) -> int:
        """Batches under way to the broker."""
        return sum(batch.flying for batch in self.window)

    @property
    def is_exhausted(self) -> bool:
        """Whether the lane needs a new producer id: it has used up the epochs of its own."""
        return self.identity.epoch > LAST_EPOCH

    def append(self, record: Waiting) -> None:
        """Takes a record in."""
        self.waiting.append(record)
        self.waiting_size += record.size
        self.appended += 1

    def give(self, identity: Identity) -> None:
        """Sends as this producer from now on; what has its sequence keeps it."""
        if self._given == identity or (self.window and not self.is_exhausted):
            return
        self._given = identity
        if identity.producer_id != self.identity.producer_id:
            self._is_remembered = False
        self._start_anew(identity)

    def take(self, now: float, *, hurry: bool = False) -> Batch | None:
        """The batch to send now, if there is one; `hurry` waits for no more records."""
        if any(batch.is_in_doubt for batch in self.window):
            # Nothing new before what failed is known: the broker remembers five batches only.
            if now < self.retry_at or self.flying or self.is_exhausted:
                return None
            return _launched(self.window[0])
        if not self.waiting or not self._is_ready(now, hurry):
            return None
        if self.is_unresolved and not self.window:
            self._take_new_epoch()
        if self.is_exhausted:
            return None
        batch = self._cut()
        self.window.append(batch)
        return _launched(batch)

    def wakes_at(self) -> float | None:
        """When `take` may give something that it does not give now; None: after an answer."""
        if self.window:
            return None if self.flying else self.retry_at
        return self.waiting[0].since + self.limits.linger if self.waiting else None

    def settle(self, batch: Batch, code: ErrorCode, now: float, *, uncertain: bool = False) -> Fate:
        """Takes in how a batch fared. `uncertain`: it may be written although it failed."""
        batch.flying = False
        batch.uncertain = batch.uncertain or uncertain or code in _PERHAPS_WRITTEN
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._delivered(batch)
            return Fate.DELIVERED
        if not (batch.uncertain and batch.is_renumbered) and self._goes_again(batch, code, now):
            return Fate.AGAIN
        self._end(batch)
        return Fate.FAILED

    def drop(self) -> list[Waiting]:
        """Gives up all that is not flying and returns its records."""
        dropped = [batch for batch in self.window if not batch.flying]
        records = [record for batch in dropped for record in batch.records]
        if dropped:
            self.window = [batch for batch in self.window if batch.flying]
            self.is_unresolved = True
        records += self.waiting
        self.waiting.clear()
        self.waiting_size = 0
        return records

    def reap(self) -> list[Waiting]:
        """The records of batches that a new epoch cost."""
        records = [record for batch in self.casualties for record in batch.records]
        self.casualties.clear()
        return records

    # -- batches ---------------------------------------------------------------------------------

    def _is_ready(self, now: float, hurry: bool) -> bool:
        # While a batch flies the next one grows; a full one has nothing to wait for.
        if self.waiting_size >= self._batch_size or hurry:
            return len(self.window) < (MAX_IN_FLIGHT if self._is_remembered else 1)
        return not self.window and now >= self.waiting[0].since + self.limits.linger

    def _cut(self) -> Batch:
        records = [self.waiting.popleft()]
        size = records[0].size
        while self.waiting and size + self.waiting[0].size <= self._batch_size:
            record = self.waiting.popleft()
            size += record.size
            records.append(record)
        self.waiting_size -= size
        sequence = self.next_sequence if self.limits.idempotent else -1
        self.next_sequence = _after(self.next_sequence, len(records))
        deadline = records[0].since + self.limits.delivery_timeout
        return Batch(records, size, deadline, self.identity, sequence)

    def _halve(self, batch: Batch) -> None:
        """Two batches in one's place: together they take the same sequences."""
        half = len(batch.records) // 2
        sequence = _after(batch.sequence, half) if self.limits.idempotent else -1
        size = sum(record.size for record in batch.records[:half])
        behind = batch.records[half:]
        rest = Batch(behind, batch.size - size, batch.deadline, batch.identity, sequence)
        del batch.records[half:]
        batch.size = size
        self.window.insert(self.window.index(batch) + 1, rest)
        self._batch_size = size

    # -- answers ---------------------------------------------------------------------------------

    def _goes_again(self, batch: Batch, code: ErrorCode, now: float) -> bool:
        if code in _LOST_STATE and self.limits.idempotent:
            if self.window[0] is not batch or batch.is_renumbered:
                return True
            if self.limits.transactional or now >= batch.deadline:
                return False
            self._take_new_epoch()
            return True
        if code in _TOO_LARGE and len(batch.records) > 1 and not batch.uncertain:
            self._halve(batch)
            return True
        if code in _UNKNOWN_TOPIC:
            batch.deadline = min(batch.deadline, now + UNKNOWN_TOPIC_PATIENCE)
        if not code.retriable or now >= batch.deadline:
            return False
        self._wait(code, now)
        return True

    def _wait(self, code: ErrorCode, now: float) -> None:
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.retry_at = now + CONCURRENT_BACKOFF
            return
        self.retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, MAX_BACKOFF)

    def _delivered(self, batch: Batch) -> None:
        self._backoff = FIRST_BACKOFF
        self.is_unresolved = False
        self._is_remembered = self.limits.idempotent
        at = self.window.index(batch)
        del self.window[at]
        if batch.is_renumbered:
            self._renumber(at, batch.sequence)

    def _end(self, batch: Batch) -> None:
        at = self.window.index(batch)
        del self.window[at]
        if batch.uncertain and not batch.is_renumbered:
            self.is_unresolved = True
        elif self.window[at:]:
            # Those behind would leave a gap, and under their old sequences they may still arrive.
            self._take_new_epoch()
        else:
            self._renumber(at, batch.sequence)

    def _renumber(self, at: int, sequence: int) -> None:
        if not self.limits.idempotent:
            return
        for batch in self.window[at:]:
            batch.identity, batch.sequence = self.identity, sequence
            sequence = _after(sequence, len(batch.records))
        self.next_sequence = sequence

    def _take_new_epoch(self) -> None:
        if self.limits.transactional or not self.limits.idempotent:
            return
        self._start_anew(self.identity._replace(epoch=self.identity.epoch + 1))

    def _start_anew(self, identity: Identity) -> None:
        lost = [batch for batch in self.window if batch.uncertain and not batch.flying]
        self.casualties += lost
        self.window = [batch for batch in self.window if batch not in lost]
        self.identity = identity
        self.is_unresolved = False
        self._renumber(0, 0)


def _launched(batch: Batch) -> Batch:
    batch.flying = True
    batch.sent_as = batch.identity, batch.sequence
    return batch


def _after(sequence: int, count: int) -> int:
    """The sequence `count` records on; after the highest one comes 0."""
    return (sequence + count) & MAX_SEQUENCE
