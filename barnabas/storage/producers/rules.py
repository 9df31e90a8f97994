"""The rules by which a partition accepts a producer's batches and markers (KIP-98, KIP-890); pure
functions."""

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.log.validator import Origin
from barnabas.storage.producers.entry import (
    WINDOW,
    BatchMetadata,
    CompletedTxn,
    ProducerStateEntry,
)
from barnabas.storage.producers.verification import VerificationGuard

_new = tuple.__new__
EPOCH_PER_TRANSACTION = 2
"""The `transaction.version` from which on a marker has a higher epoch than its transaction."""


def metadata(header: BatchHeader, first_offset: int) -> BatchMetadata:
    """Return the metadata to remember of a batch that begins at `first_offset`."""
    delta = header.last_offset_delta
    last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
    return _new(BatchMetadata, (last_sequence, first_offset + delta, delta, header.max_timestamp))


def check_epoch(entry: ProducerStateEntry, epoch: int, origin: Origin) -> None:
    """Raise INVALID_PRODUCER_EPOCH if a newer epoch has written here."""
    if epoch < entry.producer_epoch and origin is not Origin.REPLICATION:
        raise stale_epoch(epoch, entry)


def stale_epoch(epoch: int, entry: ProducerStateEntry) -> KafkaError:
    """Return the error for a producer of an older epoch."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {entry.producer_id} is smaller than the last seen, "
        f"{entry.producer_epoch}",
    )


def check_sequence(
    entry: ProducerStateEntry, header: BatchHeader, verification: VerificationGuard | None
) -> BatchMetadata | None:
    """Return the batch that `header` repeats, None if it is the next one; raise KafkaError
    otherwise."""
    if entry.producer_epoch == NO_PRODUCER_EPOCH:
        # The state may have expired, or its records may have been deleted: any sequence may be the
        # next, except one above a batch that is still being verified. A known producer has exactly
        # one next sequence, so there a late repeat that is being verified is ignored. Kafka 4.4
        # compares with it for known producers too, and refuses the next transaction.
        if verification is not None:
            _check_first_sequence(header, verification)
        return None
    sequence = header.base_sequence
    if header.producer_epoch == entry.producer_epoch:
        batches = entry.batches
        last = batches[-1].last_sequence if batches else NO_SEQUENCE
        # Sequences wrap from 2^31-1 to 0. An epoch without batches begins at 0, as -1 + 1.
        if sequence == (last + 1) & MAX_SEQUENCE:
            return None
        duplicate = entry.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        reason = f"{sequence} (incoming seq. number), {last} (current end sequence number)"
    else:
        check_epoch(entry, header.producer_epoch, Origin.CLIENT)
        if sequence == 0:
            return None
        reason = (
            f"{sequence} (incoming seq. number), 0 (expected in the new epoch "
            f"{header.producer_epoch})"
        )
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {entry.producer_id}: {reason}",
    )


def _check_first_sequence(header: BatchHeader, verification: VerificationGuard) -> None:
    """Check that no earlier batch of an unknown producer is still on its way (KIP-890)."""
    sequence, expected = header.base_sequence, verification.lowest_sequence
    if verification.opener.epoch_per_transaction:
        expected = 0
    if sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {sequence} "
            f"(incoming seq. number), {expected} (earliest seen or expected)",
        )


def append(
    entry: ProducerStateEntry,
    header: BatchHeader,
    first_offset: int,
    origin: Origin,
    guard: VerificationGuard | None = None,
) -> ProducerStateEntry:
    """Return the producer with one more batch, which uses up `guard`, its verification in progress.

    Raises INVALID_TXN_STATE for a batch outside the open transaction.
    """
    batch, epoch = metadata(header, first_offset), header.producer_epoch
    txn_first = first_offset if header.attributes & TRANSACTIONAL else None
    if entry.current_txn_first_offset is not None:
        if txn_first is None and origin is not Origin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id}",
            )
        txn_first = entry.current_txn_first_offset
    same_epoch = epoch == entry.producer_epoch
    return ProducerStateEntry(
        entry.producer_id,
        epoch,
        (*entry.batches[1 - WINDOW :], batch) if same_epoch else (batch,),
        entry.coordinator_epoch,
        batch.timestamp,
        txn_first,
        entry.opened_by if guard is None else guard.opener,
        entry.verification if guard is None else None,
    )


def end_txn(
    entry: ProducerStateEntry,
    marker: TxnMarker,
    offset: int,
    timestamp: int,
    origin: Origin,
    transaction_version: int,
) -> tuple[ProducerStateEntry, tuple[CompletedTxn, ...]]:
    """Return the producer after a marker at `offset`, and the transaction that it ends, if any.

    The marker voids a verification: an answer from before may be out of date. Raises
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    epoch, first_offset = marker.producer_epoch, entry.current_txn_first_offset
    check_epoch(entry, epoch, origin)
    if origin is not Origin.REPLICATION and transaction_version >= EPOCH_PER_TRANSACTION:
        _check_used_up(entry, epoch)
    if marker.coordinator_epoch < entry.coordinator_epoch and origin is not Origin.REPLICATION:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {marker.coordinator_epoch} of producer {entry.producer_id} is "
            f"smaller than the last seen, {entry.coordinator_epoch}",
        )
    done: tuple[CompletedTxn, ...] = ()
    if first_offset is not None:
        done = (CompletedTxn(entry.producer_id, first_offset, offset, not marker.committed),)
    batches = entry.batches if epoch == entry.producer_epoch else ()
    producer_id, coordinator_epoch = entry.producer_id, marker.coordinator_epoch
    return ProducerStateEntry(producer_id, epoch, batches, coordinator_epoch, timestamp), done


def _check_used_up(entry: ProducerStateEntry, epoch: int) -> None:
    """Check the epoch of a marker in the protocol with an epoch per transaction.

    The marker of a transaction has the next epoch. A marker with the known epoch, while no
    transaction is open, is a repeated one (KAFKA-19999).
    """
    if entry.current_txn_first_offset is not None and epoch == entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"A marker with epoch {epoch} of producer {entry.producer_id} would "
            "end the transaction of the same epoch",
        )
