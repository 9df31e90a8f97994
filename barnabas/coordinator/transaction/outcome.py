"""The outcome of a transaction that the transaction log still shows. No I/O.

A partition names an open transaction by producer id and epoch. With `transaction.version` 2 that is
one transaction, and the log's decision for it is certain. With the older protocol an epoch has many
transactions, and a record that comes after its marker looks like one whose marker was lost: only
"none of them ever committed" is certain then.

A kept transaction (KIP-939) has a second producer, that of its client. No record bears it, so a
partition never asks for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    TV2,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.states import COMPLETED, PREPARED, TransactionState
from barnabas.protocol.topic_partition import TopicPartition

_COMMITS: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class TransactionOutcome(Enum):
    """An outcome; only the first two may be written into a partition."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The coordinator will end it, or is about to write the marker."""
    UNKNOWN = "unknown"


class ReasonedOutcome(NamedTuple):
    """An outcome with its reason."""

    outcome: TransactionOutcome
    why: str
    own_epoch: bool = False
    """Whether the epoch had this transaction only: its marker has the next epoch then."""


class _End(NamedTuple):
    """A decision in the log."""

    record: TransactionMetadata
    producers: tuple[Producer, ...]
    """The producer that wrote its records; several if the log does not tell which."""
    own_epoch: bool
    partitions: frozenset[TopicPartition] | None
    """None if the log has forgotten them."""

    @property
    def committed(self) -> bool:
        return self.record.state in _COMMITS


def verdict(
    history: Sequence[TransactionMetadata], producer: Producer, partition: TopicPartition
) -> ReasonedOutcome:
    """Return the outcome of this producer's transaction that is open in `partition`.

    `history` has the log's records of the transactional id, oldest first; compaction may have
    removed the beginning.
    """
    if not history:
        return ReasonedOutcome(
            TransactionOutcome.UNKNOWN,
            f"the transaction log has nothing of producer id {producer.producer_id}",
        )
    last = history[-1]
    ongoing = last.state is TransactionState.ONGOING and last.producer == producer
    if ongoing and partition in last.partitions:
        return ReasonedOutcome(TransactionOutcome.OPEN, _open(last))
    ends = [each for each in _ends(history) if producer in each.producers]
    if ends and ends[-1].record is last and last.state in PREPARED:
        return ReasonedOutcome(
            TransactionOutcome.OPEN, f"its coordinator is in {last.state.value}, markers follow"
        )
    if ends and all(each.own_epoch for each in ends):
        return _of_one(ends[-1], partition)
    return _of_many(history, ends, producer, partition)


def _open(txn: TransactionMetadata) -> str:
    if not txn.is_kept:
        return "its coordinator has it open"
    producer_id, epoch = txn.client
    return (
        f"its coordinator keeps it for two-phase commit: only its client, {producer_id}:{epoch}, "
        "ends it"
    )


def _of_one(end: _End, partition: TopicPartition) -> ReasonedOutcome:
    decision = "commit" if end.committed else "abort"
    why = f"the transaction log says {decision} for this epoch"
    if not end.committed:
        return ReasonedOutcome(TransactionOutcome.ABORTED, why, own_epoch=True)
    if end.partitions is not None and partition not in end.partitions:
        return ReasonedOutcome(
            TransactionOutcome.UNKNOWN, f"{why}, but the partition is not among those to be marked"
        )
    return ReasonedOutcome(TransactionOutcome.COMMITTED, why, own_epoch=True)


def _of_many(
    history: Iterable[TransactionMetadata],
    ends: Iterable[_End],
    producer: Producer,
    partition: TopicPartition,
) -> ReasonedOutcome:
    """Judge an epoch of the older protocol. It begins with the record of InitProducerId: while the
    log has that record, it has every later one."""
    whole = any(
        each.state is TransactionState.EMPTY and each.producer == producer for each in history
    )
    if not whole:
        return ReasonedOutcome(
            TransactionOutcome.UNKNOWN,
            "the transaction log no longer has all transactions of this epoch",
        )
    committed = any(
        each.committed and (each.partitions is None or partition in each.partitions)
        for each in ends
    )
    if committed:
        return ReasonedOutcome(
            TransactionOutcome.UNKNOWN,
            "the older protocol has many transactions in an epoch, and one of this epoch committed "
            "here: whether these records are of it cannot be told",
        )
    return ReasonedOutcome(
        TransactionOutcome.ABORTED, "no transaction of this epoch committed in this partition"
    )


def _ends(history: Iterable[TransactionMetadata]) -> Iterator[_End]:
    """Yield every decision in the log once."""
    before: TransactionMetadata | None = None
    for record in history:
        follows = before is not None and before.state in PREPARED
        if record.state in PREPARED:
            yield _prepared(before, record)
        elif record.state in COMPLETED and not follows:
            yield _completed(record)
        before = record


def _prepared(before: TransactionMetadata | None, record: TransactionMetadata) -> _End:
    if record.ended is not None:
        return _End(record, (record.ended,), own_epoch=True, partitions=record.partitions)
    if before is None or before.state is not TransactionState.ONGOING:
        return _alone(record, record.partitions)
    own_epoch = before.client_version >= TV2 or _by_newer_client(record)
    if before.is_kept:
        # Its end tells the protocol of the client that ended it, and an older one wrote it.
        own_epoch = False
    return _End(record, (before.producer,), own_epoch, record.partitions)


def _completed(record: TransactionMetadata) -> _End:
    if record.ended is not None:
        return _End(record, (record.ended,), own_epoch=True, partitions=None)
    if record.client_version >= TV2 and record.epoch == 0:
        # Epoch 0: the transaction used up the last epoch of the previous producer id.
        used = Producer(record.previous_producer_id, LAST_CLIENT_EPOCH)
        return _End(record, (used,), own_epoch=True, partitions=None)
    return _alone(record, None)


def _alone(record: TransactionMetadata, partitions: frozenset[TopicPartition] | None) -> _End:
    """Return the end of a transaction for which the log has only the decision."""
    bumped = record.producer._replace(epoch=record.epoch - 1)
    was_kept = record.next_epoch != NO_EPOCH
    bumps = was_kept or record.client_version >= TV2
    used = (bumped,) if bumps else (bumped, record.producer)
    return _End(record, used, not was_kept and _by_newer_client(record), partitions)


def _by_newer_client(record: TransactionMetadata) -> bool:
    """Return whether a TV2 client itself made the decision. A fenced producer may be an older
    client, regardless of the version with which the coordinator fenced it. A client's own decision
    has its last epoch, or commits."""
    return record.client_version >= TV2 and (
        record.state in _COMMITS or record.last_epoch != NO_EPOCH
    )
