"""Transactions in a log against a list of everything that was ever appended to it.

After any roll, truncation, close or kill, the list of all batches tells which transactions are
open, what is stable, which epoch and sequence each producer has, and what a read_committed consumer
reads from any offset in pieces of any size.
"""

from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, TxnMarker, read_marker
from barnabas.protocol.records.record import iter_records
from barnabas.storage.log.flush import FlushJob
from barnabas.storage.log.log import Log
from barnabas.storage.log.record_steps import at_once
from barnabas.storage.log.truncation import truncate
from barnabas.storage.origin import Origin
from barnabas.storage.producers import snapshot
from barnabas.storage.producers.entry import AbortedTxn
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import NOW, batch, disk, load

PRODUCERS = st.integers(0, 3)
LAGS = st.integers(0, 3)
PLAIN = 9
"""An idempotent producer without transactions."""


class Batch(NamedTuple):
    """One batch or, without values, one marker; `committed` is the marker's."""

    first: int
    last: int
    producer: int
    epoch: int
    values: tuple[bytes, ...]
    committed: bool = False


class Model:
    """Every batch in the log, and the state that follows from them."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """Return (producer, first offset, offset of its marker if it has one, committed), ended
        transactions first, in the order of their markers; then open ones, in the order of their
        beginnings."""
        open_: dict[int, int] = {}
        ended: list[tuple[int, int, int | None, bool]] = []
        for each in self.batches:
            if each.producer == PLAIN:
                continue
            if each.values:
                open_.setdefault(each.producer, each.first)
            elif each.producer in open_:
                first = open_.pop(each.producer)
                ended.append((each.producer, first, each.last, each.committed))
        return ended + [(producer, first, None, False) for producer, first in open_.items()]

    def open_since(self) -> dict[int, int]:
        return {txn[0]: txn[1] for txn in self.transactions() if txn[2] is None}

    def stable_end(self, high_watermark: int) -> int:
        """Return the first offset of a transaction that is open or has an uncommitted marker."""
        unstable = [
            first
            for _, first, marker, _ in self.transactions()
            if marker is None or marker >= high_watermark
        ]
        return min([*unstable, high_watermark])

    def epoch(self, producer: int) -> int:
        return max((each.epoch for each in self.batches if each.producer == producer), default=0)

    def next_sequence(self, producer: int) -> int:
        epoch = self.epoch(producer)
        mine = [each for each in self.batches if (each.producer, each.epoch) == (producer, epoch)]
        return sum(len(each.values) for each in mine)

    def committed(self, start: int, end: int, known: int = 1 << 62) -> list[bytes]:
        """Return the values in [start, end) that a read_committed consumer gets.

        Transactions without a marker below `known` count as committed.
        """
        void = {
            (producer, offset)
            for producer, first, marker, committed in self.transactions()
            if marker is not None and not committed and marker < known
            for offset in range(first, marker)
        }
        return [
            value
            for each in self.batches
            for offset, value in zip(range(each.first, each.last + 1), each.values, strict=False)
            if start <= offset < end and (each.producer, offset) not in void
        ]


def filtered(data: bytes, start: int, aborted: list[AbortedTxn]) -> list[bytes]:
    """Return the values that a consumer keeps of a read_committed response, as Java's does."""
    coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
    void: set[int] = set()
    values = []
    for pos, header in iter_headers(data):
        while coming and coming[0].first_offset <= header.last_offset:
            void.add(coming.popleft().producer_id)
        if header.is_control:
            marker = read_marker(data, pos, header)
            if marker is not None and marker.type is ControlType.ABORT:
                void.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in void):
            for record in iter_records(data, pos, header):
                if record.offset >= start:
                    assert record.value is not None
                    values.append(record.value)
    return values


class TransactionalLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files: MemFiles = disk()
        self.log: Log = load(self.files)
        self.model = Model()
        self.numbers = iter(range(10**9))
        self.jobs: list[FlushJob] = []

    # -- producers and coordinators ---------------------------------------------------------------

    @rule(producer=st.one_of(PRODUCERS, st.just(PLAIN)), count=st.integers(1, 3), lag=LAGS)
    def produce(self, producer: int, count: int, lag: int) -> None:
        values = tuple(b"%d" % next(self.numbers) for _ in range(count))
        epoch = self.model.epoch(producer)
        appended = self.log.append(
            batch(
                *values,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=self.model.next_sequence(producer),
                transactional=producer != PLAIN,
            ),
            leader_epoch=0,
            now_ms=NOW,
        )
        first, last = appended.first_offset, appended.last_offset
        self.model.batches.append(Batch(first, last, producer, epoch, values))
        self.committed_but(lag)

    @rule(producer=PRODUCERS, committed=st.booleans(), version=st.sampled_from([0, 2]), lag=LAGS)
    def end(self, producer: int, committed: bool, version: int, lag: int) -> None:
        """Append a marker, of this epoch or the next; mostly, but not always, of an open
        transaction."""
        epoch = self.model.epoch(producer) + (version == 2)
        marker = TxnMarker(producer, epoch, 0, committed, version)
        offset = self.log.append(
            marker.packed(NOW)[0],
            leader_epoch=0,
            now_ms=NOW,
            origin=Origin.COORDINATOR,
            marker=marker,
        ).last_offset
        self.model.batches.append(Batch(offset, offset, producer, epoch, (), committed))
        self.committed_but(lag)

    def committed_but(self, lag: int) -> None:
        """Advance the high watermark: the followers have all but the last `lag` batches."""
        replicated = self.model.batches[: len(self.model.batches) - lag]
        if replicated:
            self.log.advance_high_watermark(replicated[-1].last + 1)

    # -- changes of the log ------------------------------------------------------------------------

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = int(self.model.end * part)
        truncate(self.log, offset, now_ms=NOW).complete()
        self.model.batches = [each for each in self.model.batches if each.last < offset]

    @rule(how=st.sampled_from(["roll", "flush", "flushed", "close", "die"]))
    def disturb(self, how: str) -> None:
        if how == "roll":
            self.log.roll(now_ms=NOW)
        elif how == "flush":
            self.jobs.append(self.log.begin_flush())
        elif how == "flushed":
            for job in self.jobs:
                job.run()
                self.log.finish_flush(job)
            self.jobs.clear()
        else:
            self.reopen(how)

    def reopen(self, how: str) -> None:
        self.jobs.clear()
        if how == "close":
            self.log.close()
        else:
            self.files.kill()
        self.log = load(self.files, clean=how == "close")

    # -- invariants --------------------------------------------------------------------------------

    @precondition(lambda self: self.model.batches)
    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read_committed(self, part: float, max_bytes: int) -> None:
        stable = self.log.last_stable_offset
        start = at = int(stable * part)
        values: list[bytes] = []
        while at < stable:
            data = self.log.read(at, max_bytes, limit=stable).read_bytes()
            *_, (_, newest) = iter_headers(data)
            aborted = self.log.aborted_transactions(at, newest.next_offset)
            values += filtered(data, at, aborted)
            at = newest.next_offset
        assert values == self.model.committed(start, stable)

    @rule(part=st.floats(0, 1), max_batches=st.integers(1, 60))
    def count_records(self, part: float, max_batches: int) -> None:
        stable, end = self.log.last_stable_offset, self.log.high_watermark
        offset = int((end + 2) * part)
        counted = at_once(self.log.count_records(offset, max_batches))
        to = max(min(counted.counted_to, stable), offset)
        assert counted.to_read == len(self.model.committed(offset, to))
        undecided = self.model.committed(max(stable, offset), counted.counted_to, end)
        assert counted.held_back == len(undecided)
        assert counted.batches <= max_batches
        assert counted.batches == max_batches or counted.counted_to >= end
        since = [first for _, first, marker, _ in self.model.transactions() if marker is None]
        by = self.log.held_back_by
        assert by is None or self.model.open_since()[by] == stable == min(since)
        assert (by is None) or stable < end

    @invariant()
    def knows_what_is_open_and_what_is_stable(self) -> None:
        log, model = self.log, self.model
        assert log.log_end_offset == model.end
        entries = {entry.producer_id: entry for entry in log.producers}
        since = {
            producer: entry.current_txn_first_offset
            for producer, entry in entries.items()
            if entry.current_txn_first_offset is not None
        }
        assert since == model.open_since()
        assert log.producers.open_count == len(since)
        assert log.last_stable_offset == model.stable_end(log.high_watermark)

    @invariant()
    def knows_every_producers_epoch_and_sequence(self) -> None:
        known = {
            entry.producer_id: (entry.producer_epoch, entry.last_sequence)
            for entry in self.log.producers
        }
        assert known == {
            producer: (self.model.epoch(producer), self.model.next_sequence(producer) - 1)
            for producer in {each.producer for each in self.model.batches}
        }


TestTransactionalLog = TransactionalLogMachine.TestCase
TestTransactionalLog.settings = settings(max_examples=100, stateful_step_count=40)


class TestTransactionalLogOfManyProducers(TransactionalLogMachine.TestCase):  # type: ignore[misc]
    """The same if flushes write the producer snapshots."""

    settings = settings(max_examples=50, stateful_step_count=40)

    @pytest.fixture(autouse=True)
    def _pending(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshot, "AT_ONCE", 0)
