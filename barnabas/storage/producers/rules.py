"""The rules by which a partition accepts a producer's batches and markers (KIP-98, KIP-890); pure
functions."""

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import (
    DuplicateSequence,
    ProducerStateEntry,
)
from barnabas.storage.producers.verification import UNVERIFIED, VerificationGuard

# A member of an enumeration is looked up by Python code, in 1,500 instructions.
_CLIENT, _REPLICATION = Origin.CLIENT, Origin.REPLICATION
EPOCH_PER_TRANSACTION = 2
"""The `transaction.version` from which on a marker has a higher epoch than its transaction."""


def check_epoch(entry: ProducerStateEntry, epoch: int, origin: Origin) -> None:
    """Raise INVALID_PRODUCER_EPOCH if a newer epoch has written here."""
    if epoch < entry.producer_epoch and origin is not _REPLICATION:
        raise stale_epoch(epoch, entry)


def stale_epoch(epoch: int, entry: ProducerStateEntry) -> KafkaError:
    """Return the error for a producer of an older epoch."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {entry.producer_id} is smaller than the last seen, "
        f"{entry.producer_epoch}",
    )


def check_sequence(
    entry: ProducerStateEntry,
    epoch: int,
    sequence: int,
    last_sequence: int,
    verification: VerificationGuard | None,
    origin: Origin,
) -> None:
    """Raise OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH unless a batch with these
    sequences is the next one, and DuplicateSequence if it repeats one."""
    if origin is not _CLIENT:
        check_epoch(entry, epoch, origin)
        return
    if entry.producer_epoch == NO_PRODUCER_EPOCH:
        # The state may have expired, or its records may have been deleted: any sequence may be the
        # next, except one above a batch that is still being verified. A known producer has exactly
        # one next sequence, so there a late repeat that is being verified is ignored. Kafka 4.4
        # compares with it for known producers too, and refuses the next transaction.
        if verification is not None:
            _check_first_sequence(entry.producer_id, sequence, verification)
        return
    if epoch == entry.producer_epoch:
        last = entry.last_sequence
        # Sequences wrap from 2^31-1 to 0. An epoch without batches begins at 0, as -1 + 1.
        if sequence == (last + 1) & MAX_SEQUENCE:
            return
        duplicate = entry.duplicate_of(sequence, last_sequence)
        if duplicate is not None:
            raise DuplicateSequence(duplicate)
        reason = f"{sequence} (incoming seq. number), {last} (current end sequence number)"
    else:
        check_epoch(entry, epoch, _CLIENT)
        if sequence == 0:
            return
        reason = f"{sequence} (incoming seq. number), 0 (expected in the new epoch {epoch})"
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {entry.producer_id}: {reason}",
    )


def _check_first_sequence(producer_id: int, sequence: int, verification: VerificationGuard) -> None:
    """Check that no earlier batch of an unknown producer is still on its way (KIP-890)."""
    expected = 0 if verification.opener.epoch_per_transaction else verification.lowest_sequence
    if sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {producer_id}: {sequence} "
            f"(incoming seq. number), {expected} (earliest seen or expected)",
        )


def check_opens(
    entry: ProducerStateEntry, epoch: int, guard: VerificationGuard | None, origin: Origin
) -> None:
    """Raise INVALID_TXN_STATE for a batch that begins a transaction without its guard."""
    is_open = entry.current_txn_first_offset is not None
    if origin is _REPLICATION or (is_open and epoch == entry.producer_epoch):
        return
    # Without verification the client of a kept transaction (KIP-939), which has a newer epoch than
    # its records, could write here: the marker would then be refused for its epoch.
    if guard is not UNVERIFIED or is_open:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"Record was not part of an ongoing transaction of producer {entry.producer_id}",
        )


def check_plain(entry: ProducerStateEntry, origin: Origin) -> None:
    """Raise INVALID_TXN_STATE for a batch without a transaction while one is open."""
    if entry.current_txn_first_offset is not None and origin is not _REPLICATION:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"Expected transactional write from producer {entry.producer_id}",
        )


def end_txn(
    entry: ProducerStateEntry,
    marker: TxnMarker,
    timestamp: int,
    origin: Origin,
) -> ProducerStateEntry:
    """Return the producer after a marker, which voids a verification: its answer may be out of
    date. Raises as `check_marker` does."""
    producer_id, epoch, coordinator_epoch, _, transaction_version = marker
    is_same = epoch == entry.producer_epoch
    if (
        epoch < entry.producer_epoch
        or coordinator_epoch < entry.coordinator_epoch
        or (is_same and transaction_version >= EPOCH_PER_TRANSACTION)
    ):
        check_marker(entry, marker, origin)
    batches = entry.batches if is_same else ()
    return ProducerStateEntry(producer_id, epoch, batches, coordinator_epoch, timestamp)


def check_marker(entry: ProducerStateEntry, marker: TxnMarker, origin: Origin) -> None:
    """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker of an earlier
    producer or coordinator."""
    if origin is _REPLICATION:
        return
    epoch = marker.producer_epoch
    check_epoch(entry, epoch, origin)
    if marker.transaction_version >= EPOCH_PER_TRANSACTION:
        _check_used_up(entry, epoch)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {marker.coordinator_epoch} of producer {entry.producer_id} is "
            f"smaller than the last seen, {entry.coordinator_epoch}",
        )


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
