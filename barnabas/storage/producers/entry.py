"""The state of one producer in one partition: values without rules."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.storage.producers.verification import VerificationGuard

WINDOW = 5
"""Batches remembered per producer: the most that it may have in flight."""

NO_COORDINATOR_EPOCH = -1


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


class ProducerEntry(NamedTuple):
    """The state of one producer id. Immutable: an append creates the next one."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    """Oldest first, at most WINDOW, all of the current epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None

    @property
    def last_offset(self) -> int:
        """Return the last offset of the last batch; -1 without a batch of this epoch."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch that `header` repeats: same epoch and sequences."""
        if header.producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if (
                    batch.last_sequence == header.last_sequence
                    and batch.first_sequence == header.base_sequence
                ):
                    return batch
        return None


class CompletedTxn(NamedTuple):
    """A transaction that a marker at `last_offset` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerUpdate(NamedTuple):
    """The changes of an append, decided before its bytes are written."""

    entries: Sequence[ProducerEntry] = ()
    started: Sequence[tuple[int, int]] = ()
    """(first offset, producer id) of the transactions that begin."""
    completed: Sequence[CompletedTxn] = ()
    marked: Sequence[int] = ()
    """Producers of the appended markers, whether these ended a transaction or not."""
    duplicate: BatchMetadata | None = None
    """The appended batch that this one repeats: it must not be appended again."""
    guard: VerificationGuard | None = None
    """The guard that the append presented; its verification ends when the batch is written."""
