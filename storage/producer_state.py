"""What a partition knows of its producers: the state behind "no duplicate, no gap" (KIP-98).

For each producer id the current epoch, the last five batches, and where its open transaction
began. Everything here follows from the log: replaying the same batches gives the same state.

    headers --prepare--> Update   (refused, or a duplicate: nothing has changed)
    bytes written --commit(Update)--> state

No disk and no clock: snapshots are files of `producer_snapshot.py`, times are arguments in ms.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    CONTROL,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.protocol.records.control import ControlType, Marker, read_marker
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.txn_index import AbortedTxn
from barnabas.storage.validator import Origin

WINDOW = 5
"""Batches remembered per producer: as many as it may have in flight."""

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
    """The state of one producer id. Immutable: an append makes the next one."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    """Oldest first, at most WINDOW, all of the current epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None

    @property
    def last_offset(self) -> int:
        """Of its last batch; -1 where there is none of this epoch."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch that `header` repeats: same epoch and sequences."""
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


class Update(NamedTuple):
    """What an append will change, decided before its bytes are written."""

    entries: Sequence[ProducerEntry] = ()
    started: Sequence[tuple[int, int]] = ()
    """(first offset, producer id) of the transactions that begin."""
    completed: Sequence[CompletedTxn] = ()
    duplicate: BatchMetadata | None = None
    """Set: the batch is in the log already, and must not be appended again."""


_NOTHING = Update()


class ProducerStateManager:
    """The producers of one partition, as of `map_end_offset`."""

    def __init__(self, map_end_offset: int = 0) -> None:
        self.map_end_offset = map_end_offset
        """The log offset up to which batches have been taken into account, exclusive."""
        self._entries: dict[int, ProducerEntry] = {}
        # First offset -> producer id; insertion order is offset order, the log only grows.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker's offset, until the high watermark has passed the marker.
        self._unreplicated: dict[int, int] = {}
        self._short_windows: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is open, or whose marker is not replicated."""
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            oldest = min(self._unreplicated)
            return oldest if first is None else min(first, oldest)
        return first

    def prepare(
        self,
        data: Buffer,
        batches: Sequence[tuple[int, BatchHeader]],
        *,
        origin: Origin,
        base_offset: int | None = None,
    ) -> Update:
        """What appending `batches` (positions in `data`, headers) will change.

        `base_offset` is the offset that the first batch is about to get, None where the batches
        carry their offsets. Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED. What comes by
        REPLICATION was accepted by a leader, and is taken as it is.
        """
        entries: dict[int, ProducerEntry] = {}
        started: list[tuple[int, int]] = []
        completed: list[CompletedTxn] = []
        for pos, header in batches:
            first = header.base_offset if base_offset is None else base_offset
            if base_offset is not None:
                base_offset += header.last_offset_delta + 1
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            entry = entries.get(producer_id) or self._entries.get(producer_id)
            if header.attributes & CONTROL:
                marker = read_marker(data, pos, header) if header.record_count else None
                if marker is not None:
                    entries[producer_id] = _end_txn(entry, header, marker, first, origin, completed)
                continue
            if origin is Origin.CLIENT:
                duplicate = _check_sequence(entry, header)
                if duplicate is not None:
                    return Update(duplicate=duplicate)
            else:
                _check_epoch(entry, header, origin)
            entry = entries[producer_id] = _append(entry, header, first, origin)
            if entry.current_txn_first_offset == first:
                started.append((first, producer_id))
        if not entries:
            return _NOTHING
        return Update(tuple(entries.values()), started, completed)

    def commit(self, update: Update, end_offset: int) -> list[AbortedTxn]:
        """Applies `update` once its bytes are in the log, whose end is now `end_offset`.

        Returns the transactions to enter into the segment's index of aborted ones.
        """
        self.map_end_offset = end_offset
        if update is _NOTHING:
            return []
        for entry in update.entries:
            self._entries[entry.producer_id] = entry
        self._ongoing.update(update.started)
        return [txn for done in update.completed if (txn := self._complete(done)) is not None]

    def _complete(self, done: CompletedTxn) -> AbortedTxn | None:
        del self._ongoing[done.first_offset]
        self._unreplicated[done.first_offset] = done.last_offset
        if not done.aborted:
            return None
        last_stable = next(iter(self._ongoing), done.last_offset + 1)
        return AbortedTxn(done.producer_id, done.first_offset, done.last_offset, last_stable)

    def replay(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> list[AbortedTxn]:
        """Takes batches into account that are in the log already; returns as `commit` does."""
        if not batches:
            return []
        update = self.prepare(data, batches, origin=Origin.REPLICATION)
        return self.commit(update, batches[-1][1].next_offset)

    def on_high_watermark(self, offset: int) -> None:
        """Forgets ended transactions whose marker the high watermark has passed."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= offset
            }

    def on_log_start(self, offset: int) -> None:
        """The log begins at `offset` now. Producers stay known, only time expires them."""
        self.on_high_watermark(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers idle for `expiration_ms`, unless a transaction is open; how many."""
        gone = [e.producer_id for e in self if _is_expired(e, now_ms, expiration_ms)]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def reset(self, map_end_offset: int) -> None:
        """Forgets everything, before a truncated or replaced log is replayed from this offset."""
        self.map_end_offset = map_end_offset
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._short_windows.clear()

    def load(
        self,
        offset: int,
        entries: Iterable[ProducerEntry],
        *,
        windows_known: bool,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        """Becomes the state of a snapshot taken at `offset`; expired producers are left out.

        Without its windows a snapshot knows one batch per producer: then `windows_wanted` until
        `extend_windows` has seen enough of the log before `offset`.
        """
        self.reset(offset)
        live = [e for e in entries if not _is_expired(e, now_ms, expiration_ms)]
        self._entries = {entry.producer_id: entry for entry in live}
        self._ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in live
                if entry.current_txn_first_offset is not None
            )
        )
        if not windows_known:
            self._short_windows = {e.producer_id for e in live if e.batches and not _is_full(e)}

    @property
    def windows_wanted(self) -> bool:
        """Whether producers may have batches before the snapshot that it did not name."""
        return bool(self._short_windows)

    def extend_windows(self, headers: Sequence[BatchHeader]) -> None:
        """Fills windows from a stretch of the log before the one seen last, in log order."""
        for header in reversed(headers):
            entry = self._entries.get(header.producer_id)
            if entry is None or header.is_control or entry.producer_id not in self._short_windows:
                continue
            if header.producer_epoch == entry.producer_epoch:
                if header.last_offset < entry.batches[0].first_offset:
                    batch = _metadata(header, header.base_offset)
                    entry = entry._replace(batches=(batch, *entry.batches))
                    self._entries[entry.producer_id] = entry
                if not _is_full(entry):
                    continue
            self._short_windows.discard(entry.producer_id)


def _is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    idle = now_ms - entry.last_timestamp
    return entry.current_txn_first_offset is None and idle >= expiration_ms


def _is_full(entry: ProducerEntry) -> bool:
    # An epoch begins with sequence 0: there is nothing before it.
    return len(entry.batches) == WINDOW or entry.batches[0].first_sequence == 0


def _metadata(header: BatchHeader, first_offset: int) -> BatchMetadata:
    delta = header.last_offset_delta
    last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
    return BatchMetadata(last_sequence, first_offset + delta, delta, header.max_timestamp)


def _check_epoch(entry: ProducerEntry | None, header: BatchHeader, origin: Origin) -> None:
    if entry is None or origin is Origin.REPLICATION:
        return
    if header.producer_epoch < entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch {header.producer_epoch} of producer {entry.producer_id} is smaller "
            f"than the last seen, {entry.producer_epoch}",
        )


def _check_sequence(entry: ProducerEntry | None, header: BatchHeader) -> BatchMetadata | None:
    """The batch that `header` repeats, None if it is the next one, KafkaError if it is neither."""
    if entry is None:
        # The state may have expired, or its records been deleted: any sequence can be the next.
        return None
    sequence = header.base_sequence
    if header.producer_epoch == entry.producer_epoch:
        last = entry.last_sequence
        # Sequences wrap from 2^31-1 to 0. An epoch without batches begins at 0, as -1 + 1.
        if sequence == (last + 1) & MAX_SEQUENCE:
            return None
        duplicate = entry.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        reason = f"{sequence} (incoming seq. number), {last} (current end sequence number)"
    else:
        _check_epoch(entry, header, Origin.CLIENT)
        if sequence == 0:
            return None
        reason = f"{sequence} as the first one of epoch {header.producer_epoch}"
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {entry.producer_id}: {reason}",
    )


def _append(
    entry: ProducerEntry | None, header: BatchHeader, first_offset: int, origin: Origin
) -> ProducerEntry:
    batch = _metadata(header, first_offset)
    txn_first = first_offset if header.is_transactional else None
    if entry is None:
        return ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            (batch,),
            NO_COORDINATOR_EPOCH,
            header.max_timestamp,
            txn_first,
        )
    if entry.current_txn_first_offset is not None:
        if txn_first is None and origin is not Origin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id}",
            )
        txn_first = entry.current_txn_first_offset
    same_epoch = header.producer_epoch == entry.producer_epoch
    return ProducerEntry(
        entry.producer_id,
        header.producer_epoch,
        (*entry.batches[1 - WINDOW :], batch) if same_epoch else (batch,),
        entry.coordinator_epoch,
        header.max_timestamp,
        txn_first,
    )


def _end_txn(
    entry: ProducerEntry | None,
    header: BatchHeader,
    marker: Marker,
    offset: int,
    origin: Origin,
    completed: list[CompletedTxn],
) -> ProducerEntry:
    _check_epoch(entry, header, origin)
    if entry is None:
        entry = ProducerEntry(header.producer_id, header.producer_epoch)
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
    same_epoch = header.producer_epoch == entry.producer_epoch
    return ProducerEntry(
        entry.producer_id,
        header.producer_epoch,
        entry.batches if same_epoch else (),
        marker.coordinator_epoch,
        header.max_timestamp,
        None,
    )
