"""The rules by which a partition accepts a producer's batches and markers (KIP-98, KIP-890); pure
functions."""

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.storage.log.validator import Origin
from barnabas.storage.producers.entry import (
    NO_COORDINATOR_EPOCH,
    WINDOW,
    BatchMetadata,
    CompletedTxn,
    ProducerEntry,
)
from barnabas.storage.producers.verification import Verification

EPOCH_PER_TRANSACTION = 2
"""The `transaction.version` from which on a marker has a higher epoch than its transaction."""


def metadata(header: BatchHeader, first_offset: int) -> BatchMetadata:
    """Return the metadata to remember of a batch that begins at `first_offset`."""
    delta = header.last_offset_delta
    last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
    return BatchMetadata(last_sequence, first_offset + delta, delta, header.max_timestamp)


def check_epoch(entry: ProducerEntry | None, epoch: int, origin: Origin) -> None:
    """Raise INVALID_PRODUCER_EPOCH if a newer epoch has written here."""
    if entry is None or origin is Origin.REPLICATION:
        return
    if epoch < entry.producer_epoch:
        raise stale_epoch(epoch, entry)


def stale_epoch(epoch: int, entry: ProducerEntry) -> KafkaError:
    """Return the error for a producer of an older epoch."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {entry.producer_id} is smaller than the last seen, "
        f"{entry.producer_epoch}",
    )


def check_sequence(
    entry: ProducerEntry | None, header: BatchHeader, verification: Verification | None
) -> BatchMetadata | None:
    """Return the batch that `header` repeats, None if it is the next one; raise KafkaError
    otherwise."""
    if entry is None:
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


def _check_first_sequence(header: BatchHeader, verification: Verification) -> None:
    """Check that no earlier batch of an unknown producer is still on its way (KIP-890)."""
    sequence, expected = header.base_sequence, verification.lowest_sequence
    if verification.epoch_per_transaction:
        expected = 0
    if sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {sequence} "
            f"(incoming seq. number), {expected} (earliest seen or expected)",
        )


def append(
    entry: ProducerEntry | None, header: BatchHeader, first_offset: int, origin: Origin
) -> ProducerEntry:
    """Return the producer with one more batch; raises INVALID_TXN_STATE for one outside its open
    transaction."""
    batch, epoch = metadata(header, first_offset), header.producer_epoch
    txn_first = first_offset if header.attributes & TRANSACTIONAL else None
    if entry is None:
        return ProducerEntry(
            header.producer_id, epoch, (batch,), NO_COORDINATOR_EPOCH, batch.timestamp, txn_first
        )
    producer_id, known_epoch, batches, coordinator_epoch, _, open_txn = entry
    if open_txn is not None:
        if txn_first is None and origin is not Origin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id}",
            )
        txn_first = open_txn
    batches = (*batches[1 - WINDOW :], batch) if epoch == known_epoch else (batch,)
    return ProducerEntry(producer_id, epoch, batches, coordinator_epoch, batch.timestamp, txn_first)


def end_txn(
    entry: ProducerEntry | None,
    marker: TxnMarker,
    offset: int,
    timestamp: int,
    origin: Origin,
    transaction_version: int,
    completed: list[CompletedTxn],
) -> ProducerEntry:
    """Return the producer after a marker at `offset`; `completed` receives the transaction it ends.

    Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    check_epoch(entry, epoch, origin)
    if origin is not Origin.REPLICATION and transaction_version >= EPOCH_PER_TRANSACTION:
        _check_used_up(entry, epoch)
    if entry is None:
        entry = ProducerEntry(producer_id, epoch)
    if marker.coordinator_epoch < entry.coordinator_epoch and origin is not Origin.REPLICATION:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {marker.coordinator_epoch} of producer {entry.producer_id} is "
            f"smaller than the last seen, {entry.coordinator_epoch}",
        )
    if entry.current_txn_first_offset is not None:
        aborted = marker.type is ControlType.ABORT
        completed.append(
            CompletedTxn(entry.producer_id, entry.current_txn_first_offset, offset, aborted)
        )
    batches = entry.batches if epoch == entry.producer_epoch else ()
    return ProducerEntry(producer_id, epoch, batches, marker.coordinator_epoch, timestamp, None)


def _check_used_up(entry: ProducerEntry | None, epoch: int) -> None:
    """Check the epoch of a marker in the protocol with an epoch per transaction.

    The marker of a transaction has the next epoch. A marker with the known epoch, while no
    transaction is open, is a repeated one (KAFKA-19999).
    """
    if entry is None or entry.current_txn_first_offset is None:
        return
    if epoch == entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"A marker with epoch {epoch} of producer {entry.producer_id} would "
            "end the transaction of the same epoch",
        )
