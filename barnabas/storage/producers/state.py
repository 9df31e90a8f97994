"""The producer state of a partition, by which it refuses duplicates and gaps (KIP-98), and batches
of unverified transactions (KIP-890).

Each producer id has one `ProducerStateEntry`. Its logged part follows from the log: replaying the
same batches gives the same state.

    headers --prepare--> Update   (refused, or a duplicate: nothing has changed)
    bytes written --commit(Update)--> state

An entry begins with a batch or a marker (`commit`), a verification (`_verify`) or a snapshot
(`load`). It ends when its producer is idle (`expire`), with its guard if the log has nothing of the
producer (`_end_verification`), or with the log (`reset`, `discard`).

No disk and no clock: `snapshot.py` has the files, times are arguments in ms.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    CONTROL,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
)
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import (
    WINDOW,
    AbortedTxn,
    BatchMetadata,
    CompletedTxn,
    ProducerStateEntry,
    ProducerUpdate,
)
from barnabas.storage.producers.rules import (
    check_opens,
    check_plain,
    check_sequence,
    end_txn,
    stale_epoch,
)
from barnabas.storage.producers.verification import UNVERIFIED, Opener, VerificationGuard

# A member of an enumeration is looked up by Python code, in 1,500 instructions.
_CLIENT, _COORDINATOR, _REPLICATION = Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION
_KEPT = slice(1 - WINDOW, None)
"""The batches of a producer that stay when one is added."""
_EXPIRY_STEP = 2_000
"""Producers in a step of `expire`."""


class ProducerStateManager:
    """The producers of one partition, as of `map_end_offset`."""

    def __init__(self, map_end_offset: int = 0) -> None:
        self.map_end_offset = map_end_offset
        """The log offset up to which batches are taken into account, exclusive."""
        self.entries: dict[int, ProducerStateEntry] = {}
        """The producers that the log knows; only this class changes them."""
        # Producers of which the log has nothing: each is being verified. `commit` moves them.
        self._unlogged: dict[int, ProducerStateEntry] = {}
        # Counts the leader epochs that have begun.
        self._leadership = 0
        self.ongoing: dict[int, int] = {}
        """The open transactions: first offset -> producer id. Their order is that of the offsets,
        because the log only grows."""
        # First offset -> offset of the marker, until the high watermark has passed the marker.
        self.unreplicated: dict[int, int] = {}
        self._short_windows: set[int] = set()

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self.entries.values())

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the entry of a producer that the log knows."""
        return self.entries.get(producer_id)

    @property
    def open_count(self) -> int:
        """Return the number of open transactions."""
        return len(self.ongoing)

    def opened_in(self, start: int, end: int) -> list[int]:
        """Return the producers whose open transaction began at an offset in [start, end)."""
        return [producer for first, producer in self.ongoing.items() if start <= first < end]

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest transaction that is open, or whose marker is not
        replicated."""
        first = next(iter(self.ongoing), None)
        if self.unreplicated:
            oldest = min(self.unreplicated)
            return oldest if first is None else min(first, oldest)
        return first

    @property
    def first_unstable_producer(self) -> int | None:
        """Return the producer of the transaction at `first_unstable_offset`, if it is open."""
        first = self.first_unstable_offset
        return None if first is None else self.ongoing.get(first)

    def prepare(
        self,
        data: Buffer,
        batches: Sequence[tuple[int, HeaderFields]],
        origin: Origin,
        base_offset: int | None = None,
        guard: VerificationGuard | None = UNVERIFIED,
        marker: TxnMarker | None = None,
    ) -> ProducerUpdate:
        """Return the changes that appending `batches` (positions in `data`, headers) will make.

        `base_offset` is that of the first batch, None if the batches carry their offsets; `guard`
        the result of `begin_verification`; `marker` the one that a single batch is. Batches from
        REPLICATION are taken unchanged. Raises DuplicateSequence, or KafkaError: INVALID_TXN_STATE,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        new: dict[int, ProducerStateEntry] = {}
        started: list[tuple[int, int]] = []
        completed: list[CompletedTxn] = []
        known, verified = self.entries, None
        for pos, header in batches:
            first, _, _, _, _, kind, delta, _, max_ms, producer_id, epoch, sequence, _ = header
            if base_offset is not None:
                first, base_offset = base_offset, base_offset + delta + 1
            if producer_id < 0:
                continue
            entry = new.get(producer_id) if new else known.get(producer_id)
            entry = entry or known.get(producer_id) or self._known(producer_id)
            known_epoch, txn_first = entry.producer_epoch, entry.current_txn_first_offset
            if kind & CONTROL:
                ended = marker or read_marker(data, pos, BatchHeader(*header))
                if ended is not None:
                    new[producer_id] = end_txn(entry, ended, max_ms, origin)
                    if txn_first is not None:
                        completed.append((producer_id, txn_first, first, not ended.committed))
                continue
            # Most batches are the next ones of their producer. A check only explains a refusal.
            earlier = entry.batches if epoch == known_epoch else ()
            expected = (earlier[-1][0] + 1) & MAX_SEQUENCE if earlier else 0
            opened_by, verification = entry.opened_by, entry.verification
            pending = None if verification is None else self._pending(entry)
            last = (sequence + delta) & MAX_SEQUENCE
            if epoch < known_epoch or (sequence != expected and origin is _CLIENT):
                check_sequence(entry, epoch, sequence, last, pending, origin)
            if kind & TRANSACTIONAL:
                if pending is not None and guard is pending:
                    verified, opened_by, verification = guard, guard.opener, None
                elif txn_first is None or epoch != known_epoch:
                    check_opens(entry, epoch, guard, origin)
                if txn_first is None:
                    txn_first = first
                    started.append((first, producer_id))
            elif txn_first is not None:
                check_plain(entry, origin)
            latest = earlier[_KEPT] + ((last, first + delta, delta, max_ms),)
            new[producer_id] = ProducerStateEntry(
                producer_id, epoch, latest, entry.coordinator_epoch, max_ms, txn_first, opened_by,
                verification,
            )  # fmt: skip
        return new, started, completed, verified

    def begin_verification(self, claim: Claim) -> VerificationGuard | None:
        """Return the guard that the producer's batch needs from its coordinator (KIP-890), or None.

        None if its transaction of this epoch is open here and was verified for the same
        transactional id and protocol. A transaction that the older protocol opened may only be
        waiting for its marker, and what a client of the newer protocol writes then belongs to the
        next one (KAFKA-18227). Raises KafkaError: INVALID_PRODUCER_EPOCH for an older epoch,
        INVALID_PRODUCER_ID_MAPPING if the open transaction belongs to another transactional id, or
        to another principal.
        """
        entry, epoch = self._known(claim.producer_id), claim.producer_epoch
        if epoch < entry.producer_epoch:
            raise stale_epoch(epoch, entry)
        if (
            entry.current_txn_first_offset is not None
            and epoch == entry.producer_epoch
            and (opener := entry.opened_by) is not None
        ):
            owner = claim.transactional_id, claim.principal
            if opener == (owner[0], claim.epoch_per_transaction, owner[1]):
                return None
            if (opener.transactional_id, opener.principal) != owner:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"The open transaction of producer {entry.producer_id} does not belong to "
                    f"{claim.transactional_id}, or was begun by another principal",
                )
        pending = None if entry.verification is None else self._pending(entry)
        if pending is None or not pending.is_shared_by(claim):
            return self._verify(entry, VerificationGuard(claim))
        pending.joined_by(claim)
        return pending

    def expect(self, claim: Claim, coordinator_epoch: int) -> VerificationGuard | None:
        """Expect the first batch of a producer, whose coordinator vouches for it in advance.

        None if the partition has to ask all the same: a transaction of the producer is open here,
        a newer epoch has written, a newer coordinator has ended a transaction, or a verification is
        in progress.
        """
        producer_id = claim.producer_id
        entry = self.entries.get(producer_id) or self._known(producer_id)
        pending = entry.verification
        if (
            entry.current_txn_first_offset is not None
            or claim.producer_epoch < entry.producer_epoch
            or coordinator_epoch < entry.coordinator_epoch
            # A question to the coordinator is never void.
            or (pending is not None and pending.leadership is None)
        ):
            return None
        return self._verify(entry, VerificationGuard(claim, self._leadership))

    def expected(
        self, producer_id: int, epoch: int, opener: Opener | None
    ) -> VerificationGuard | None:
        """Return the guard of a producer that is expected to open a transaction; None if its
        coordinator has to be asked, as for a client whose id is not known."""
        entry = self.entries.get(producer_id) or self._unlogged.get(producer_id)
        guard = None if entry is None else entry.verification
        if (
            guard is None
            or guard.voided
            or guard.leadership != self._leadership
            or guard.epoch != epoch
            or guard.opener != opener
        ):
            return None
        return guard

    def forget_expected(self) -> None:
        """Void every expectation: another leader epoch begins, or has begun."""
        # The guards are not looked for: there may be hundreds of thousands of producers.
        self._leadership += 1

    def forget_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """Void a guard: the coordinator does not know the producer."""
        entry = self._known(producer_id)
        if entry.verification is guard:
            self._end_verification(entry)

    def _known(self, producer_id: int) -> ProducerStateEntry:
        """Return the entry of a producer; an empty one if the partition does not know it."""
        return (
            self.entries.get(producer_id)
            or self._unlogged.get(producer_id)
            or ProducerStateEntry(producer_id)
        )

    def _pending(self, entry: ProducerStateEntry) -> VerificationGuard | None:
        """Return the guard that the producer's first batch has to present, if it is not void."""
        guard = entry.verification
        if guard is None or guard.voided or guard.leadership not in (None, self._leadership):
            return None
        return guard

    def _verify(self, entry: ProducerStateEntry, guard: VerificationGuard) -> VerificationGuard:
        """Begin a verification; the one in progress is void."""
        producer_id = entry.producer_id
        entries = self.entries if producer_id in self.entries else self._unlogged
        entries[producer_id] = ProducerStateEntry(
            producer_id,
            entry.producer_epoch,
            entry.batches,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
            entry.opened_by,
            guard,
        )
        return guard

    def _end_verification(self, entry: ProducerStateEntry) -> None:
        """Void the verification in progress."""
        producer_id = entry.producer_id
        if self._unlogged.pop(producer_id, None) is None:
            self.entries[producer_id] = replace(entry, verification=None)

    def commit(self, update: ProducerUpdate, end_offset: int) -> list[AbortedTxn]:
        """Apply `update` once its bytes are in the log, whose end is now `end_offset`.

        Returns the transactions to add to the segment's index of aborted ones.
        """
        entries, started, completed, verified = update
        self.map_end_offset = end_offset
        self.entries.update(entries)
        if self._unlogged:
            for producer_id in entries:
                self._unlogged.pop(producer_id, None)
        if verified is not None:
            verified.written = True
        if started:
            self.ongoing.update(started)
        aborts: list[AbortedTxn] = []
        if not completed:
            return aborts
        for producer_id, first, last, aborted in completed:
            del self.ongoing[first]
            self.unreplicated[first] = last
            if aborted:
                # A follower that receives both at once may already know a transaction that began
                # after the marker.
                last_stable = min(next(iter(self.ongoing), last + 1), last + 1)
                aborts.append(AbortedTxn(producer_id, first, last, last_stable))
        return aborts

    def replay(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> list[AbortedTxn]:
        """Take batches into account that are in the log already; returns as `commit` does."""
        if not batches:
            return []
        update = self.prepare(data, batches, origin=_REPLICATION)
        return self.commit(update, batches[-1][1].next_offset)

    def on_high_watermark(self, offset: int) -> None:
        """Forget ended transactions whose marker the high watermark has passed."""
        if self.unreplicated:
            self.unreplicated = {
                first: last for first, last in self.unreplicated.items() if last >= offset
            }

    def on_log_start(self, offset: int) -> None:
        """Note that the log begins at `offset` now. Producers stay known; only time expires
        them."""
        self.on_high_watermark(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers idle for `expiration_ms` without an open transaction, and verifications
        that the previous call has seen: their clients have gone. Yields how many producers, after
        each step of about a millisecond.

        The timestamps are the clients': one in the future counts as now, or its producer would be
        remembered until then. The state may change between the steps.
        """
        left = [*self.entries, *self._unlogged]
        while left:
            step = left[-_EXPIRY_STEP:]
            # The ids of forgotten producers are freed step by step too.
            del left[-_EXPIRY_STEP:]
            yield sum(self._expires(each, now_ms, expiration_ms) for each in step)

    def _expires(self, producer_id: int, now_ms: int, expiration_ms: int) -> bool:
        """Forget a producer that is idle; return whether it is."""
        known = self._known(producer_id)
        if (guard := known.verification) is not None:
            if not guard.seen_before:
                guard.seen_before = True
                return False
            self._end_verification(known)
        entry = self.entries.get(producer_id)
        if entry is None:
            return False
        if entry.last_timestamp > now_ms:
            entry = self.entries[producer_id] = replace(entry, last_timestamp=now_ms)
        if not _is_expired(entry, now_ms, expiration_ms):
            return False
        del self.entries[producer_id]
        return True

    def reset(self, map_end_offset: int) -> None:
        """Forget everything, before a truncated or replaced log is replayed from this offset."""
        self.map_end_offset = map_end_offset
        self.entries.clear()
        self._unlogged.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self._short_windows.clear()

    def discard(self) -> None:
        """Free the producers of a log that is out of service, on a thread, one by one.

        Other threads run meanwhile. To free 500,000 in one go keeps them waiting for 80 ms.
        """
        while self.entries:
            self.entries.popitem()

    def load(
        self,
        offset: int,
        entries: Iterable[ProducerStateEntry],
        *,
        windows_known: bool,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        """Load a snapshot taken at `offset`; expired producers are left out.

        Without its windows a snapshot has one batch per producer: `windows_wanted` then holds until
        `extend_windows` has seen enough of the log before `offset`.
        """
        self.reset(offset)
        # Entries that come from memory may have guards, which are void now.
        bare = (
            replace(each, verification=None, opened_by=None)
            if each.verification or each.opened_by
            else each
            for each in entries
        )
        live = [e for e in bare if not _is_expired(e, now_ms, expiration_ms)]
        self.entries = {entry.producer_id: entry for entry in live}
        self.ongoing = dict(
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
        """Return whether producers may have batches before the snapshot that it does not have."""
        return bool(self._short_windows)

    def extend_windows(self, headers: Sequence[BatchHeader]) -> None:
        """Fill windows from the range of the log before the one seen last, in log order."""
        for header in reversed(headers):
            entry = self.entries.get(header.producer_id)
            if entry is None or header.is_control or entry.producer_id not in self._short_windows:
                continue
            if header.producer_epoch == entry.producer_epoch:
                if header.last_offset < BatchMetadata(*entry.batches[0]).first_offset:
                    delta, newest = header.last_offset_delta, header.max_timestamp
                    last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
                    batch = (last_sequence, header.last_offset, delta, newest)
                    entry = replace(entry, batches=(batch, *entry.batches))
                    self.entries[entry.producer_id] = entry
                if not _is_full(entry):
                    continue
            self._short_windows.discard(entry.producer_id)


def _is_expired(entry: ProducerStateEntry, now_ms: int, expiration_ms: int) -> bool:
    idle = now_ms - entry.last_timestamp
    return entry.current_txn_first_offset is None and idle >= expiration_ms


def _is_full(entry: ProducerStateEntry) -> bool:
    # An epoch begins with sequence 0: there is nothing before it.
    return len(entry.batches) == WINDOW or BatchMetadata(*entry.batches[0]).first_sequence == 0
