"""What became of a transaction, as far as the transaction log still tells. Pure.

A partition names an open transaction by producer id and epoch. With `transaction.version` 2 that is
one transaction, and the log's decision for it is certain. With the older protocol an epoch has many
transactions, and a record that comes after its marker looks like one whose marker was lost: then
only "none of them ever committed" is certain.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    TV2,
    Producer,
    Transaction,
)
from barnabas.coordinator.transaction.states import COMPLETED, PREPARED, TransactionState
from barnabas.protocol.topic_partition import TopicPartition

_COMMITS: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class Outcome(Enum):
    """What the log says; only the first two may be written into a partition."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """Its coordinator will end it, or is about to write the marker."""
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """The outcome, and what it rests on."""

    outcome: Outcome
    why: str
    own_epoch: bool = False
    """Whether the epoch had this transaction only: then its marker has the next one."""


class _End(NamedTuple):
    """A decision in the log."""

    record: Transaction
    producers: tuple[Producer, ...]
    """With which its records were written: one, or those that it may have been."""
    own_epoch: bool
    partitions: frozenset[TopicPartition] | None
    """None where the log has forgotten them."""

    @property
    def committed(self) -> bool:
        return self.record.state in _COMMITS


def verdict(
    history: Sequence[Transaction], producer: Producer, partition: TopicPartition
) -> Verdict:
    """What became of the transaction that `partition` has open of this producer.

    `history` is what the log has of the transactional id, oldest first; compaction may have removed
    its beginning.
    """
    if not history:
        return Verdict(
            Outcome.UNKNOWN,
            f"the transaction log has nothing of producer id {producer.producer_id}",
        )
    last = history[-1]
    ongoing = last.state is TransactionState.ONGOING and last.producer == producer
    if ongoing and partition in last.partitions:
        return Verdict(Outcome.OPEN, "its coordinator has it open")
    ends = [each for each in _ends(history) if producer in each.producers]
    if ends and ends[-1].record is last and last.state in PREPARED:
        return Verdict(Outcome.OPEN, f"its coordinator is in {last.state.value}, markers follow")
    if ends and all(each.own_epoch for each in ends):
        return _of_one(ends[-1], partition)
    return _of_many(history, ends, producer, partition)


def _of_one(end: _End, partition: TopicPartition) -> Verdict:
    decision = "commit" if end.committed else "abort"
    why = f"the transaction log says {decision} for this epoch"
    if not end.committed:
        return Verdict(Outcome.ABORTED, why, own_epoch=True)
    if end.partitions is not None and partition not in end.partitions:
        return Verdict(Outcome.UNKNOWN, f"{why}, but the partition is not among those to be marked")
    return Verdict(Outcome.COMMITTED, why, own_epoch=True)


def _of_many(
    history: Iterable[Transaction],
    ends: Iterable[_End],
    producer: Producer,
    partition: TopicPartition,
) -> Verdict:
    """Of the older protocol. The record of InitProducerId is where an epoch begins: while the log
    has it, the log has all that follows."""
    whole = any(
        each.state is TransactionState.EMPTY and each.producer == producer for each in history
    )
    if not whole:
        return Verdict(
            Outcome.UNKNOWN, "the transaction log no longer has all transactions of this epoch"
        )
    committed = any(
        each.committed and (each.partitions is None or partition in each.partitions)
        for each in ends
    )
    if committed:
        return Verdict(
            Outcome.UNKNOWN,
            "the older protocol has many transactions in an epoch, and one of this epoch committed "
            "here: whether these records are of it cannot be told",
        )
    return Verdict(Outcome.ABORTED, "no transaction of this epoch committed in this partition")


def _ends(history: Iterable[Transaction]) -> Iterator[_End]:
    """Every decision in the log, once."""
    before: Transaction | None = None
    for record in history:
        follows = before is not None and before.state in PREPARED
        if record.state in PREPARED:
            yield _prepared(before, record)
        elif record.state in COMPLETED and not follows:
            yield _completed(record)
        before = record


def _prepared(before: Transaction | None, record: Transaction) -> _End:
    if before is None or before.state is not TransactionState.ONGOING:
        return _alone(record, record.partitions)
    own_epoch = before.client_version >= TV2 or _by_newer_client(record)
    return _End(record, (before.producer,), own_epoch, record.partitions)


def _completed(record: Transaction) -> _End:
    if record.client_version >= TV2 and record.epoch == 0:
        # The one before used up the epochs of its producer id.
        used = Producer(record.previous_producer_id, LAST_CLIENT_EPOCH)
        return _End(record, (used,), own_epoch=True, partitions=None)
    return _alone(record, None)


def _alone(record: Transaction, partitions: frozenset[TopicPartition] | None) -> _End:
    """The decision is all that is left of the transaction."""
    bumped = record.producer._replace(epoch=record.epoch - 1)
    used = (bumped,) if record.client_version >= TV2 else (bumped, record.producer)
    return _End(record, used, _by_newer_client(record), partitions)


def _by_newer_client(record: Transaction) -> bool:
    """Who is fenced may have been an older client, whatever version the coordinator fences with;
    a client's own decision says which epoch it had, or commits."""
    return record.client_version >= TV2 and (
        record.state in _COMMITS or record.last_epoch != NO_EPOCH
    )
