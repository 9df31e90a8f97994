"""The state of one producer in one partition: values without rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from barnabas.storage.producers.verification import Opener, VerificationGuard

WINDOW = 5
"""Batches remembered per producer: the most that it may have in flight."""

NO_COORDINATOR_EPOCH = -1


Batch = tuple[int, int, int, int]
"""The fields of a `BatchMetadata`. Every append makes one: a plain tuple takes a tenth of the
time of a named one, and the garbage collector does not visit it."""


class BatchMetadata(NamedTuple):
    """One appended batch, by its last sequence and offset; `timestamp` is its greatest, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


# Slots are read in half the time of a named tuple's fields, and take no more memory.
@dataclass(slots=True)
class ProducerStateEntry:
    """All that a partition knows about a producer id.

    Immutable: an append, a marker or a verification puts another entry in its place. So a snapshot
    may be written from the entries of its moment, and a refusal has nothing to restore.
    """

    producer_id: int

    # These follow from the log, and are in snapshots.
    producer_epoch: int = NO_PRODUCER_EPOCH
    """NO_PRODUCER_EPOCH if the log has nothing of the producer."""
    batches: tuple[Batch, ...] = ()
    """The last batches, oldest first, at most WINDOW, all of the current epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the coordinator that sent the last marker."""
    last_timestamp: int = NO_TIMESTAMP
    """The time of the last batch or marker, in ms; the producer expires by it."""
    current_txn_first_offset: int | None = None
    """The first offset of the open transaction; None if none is open."""

    # These end with the process.
    opened_by: Opener | None = None
    """The client that the open transaction was verified for. None if none is open, or if it was
    not verified: before the last start, or because verification is disabled."""
    verification: VerificationGuard | None = None
    """The guard of the verification in progress. It may be void: see
    `ProducerStateManager.forget_expected`."""

    @property
    def last_offset(self) -> int:
        """Return the last offset of the last batch; -1 without a batch of this epoch."""
        return self.batches[-1][1] if self.batches else -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    def duplicate_of(self, sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the remembered batch that has these sequences, of the current epoch."""
        for batch in map(BatchMetadata._make, self.batches):
            if (batch.first_sequence, batch.last_sequence) == (sequence, last_sequence):
                return batch
        return None


CompletedTxn = tuple[int, int, int, bool]
"""A transaction that a marker ended: producer id, first offset, the marker's, and whether it was
aborted."""
ProducerUpdate = tuple[
    Mapping[int, ProducerStateEntry],
    Sequence[tuple[int, int]],
    Sequence[CompletedTxn],
    VerificationGuard | None,
]
"""The changes of an append, decided before its bytes are written: the producers, (first offset,
producer id) of the transactions that begin, those that end, and the guard that it uses up."""


class DuplicateSequence(KafkaError):
    """A batch that repeats an appended one, which must not be appended again."""

    def __init__(self, batch: BatchMetadata) -> None:
        super().__init__(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        self.batch = batch
        """The appended one."""


class AbortedTxn(NamedTuple):
    """The data of `producer_id` in [first_offset, last_offset] is aborted.

    `last_offset` is the offset of the abort marker, `last_stable_offset` that of the partition
    after the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
