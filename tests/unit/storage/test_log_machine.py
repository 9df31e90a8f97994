"""A log behaves as a list of records, for any sequence of operations."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from barnabas.storage.log.record_steps import at_once
from barnabas.storage.log.truncation import truncate
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import NOW, disk, load, put, retain

Kept = tuple[int, int, int, bytes]
"""Offset, timestamp, leader epoch and value of a record."""


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files: MemFiles = disk()
        self.log = load(self.files)
        self.records: list[Kept] = []
        self.starts: list[int] = []
        self.start = self.end = self.durable = self.epoch = 0

    @rule(
        values=st.lists(st.binary(max_size=90), min_size=1, max_size=4),
        timestamp=st.integers(NOW - 50, NOW),
    )
    def append(self, values: list[bytes], timestamp: int) -> None:
        first = put(self.log, *values, epoch=self.epoch, timestamp=timestamp)
        assert first == self.end
        self.starts.append(first)
        self.records += [(first + i, timestamp, self.epoch, v) for i, v in enumerate(values)]
        self.end += len(values)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_leader_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=NOW)

    @rule()
    def flush(self) -> None:
        self.durable = self.log.flush()
        assert self.durable == self.end

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.start + int((self.end - self.start) * part)
        truncate(self.log, offset, now_ms=NOW).complete()
        self.ends_at(max([s for s in self.starts if s <= offset], default=offset), offset)

    def ends_at(self, batch_start: int, offset: int) -> None:
        """Note the log end: a batch that reaches over `offset` is dropped whole."""
        if offset < self.end:
            self.end = batch_start
            self.starts = [s for s in self.starts if s < self.end]
            self.records = [r for r in self.records if r[0] < self.end]
            self.start = min(self.start, self.end)
            self.durable = min(self.durable, self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.start += int((self.end - self.start) * part)
        self.log.delete_records_before(self.start)
        retain(self.log, NOW)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.durable = self.end
        self.log = load(self.files, clean=True, log_start_offset=self.start)

    @rule()
    def die_and_open(self) -> None:
        self.files.kill()
        self.log = load(self.files, log_start_offset=self.start)

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.files.sync_dir("/data")
        self.files.crash(seed)
        self.log = load(self.files, log_start_offset=self.start)
        assert self.durable <= self.log.log_end_offset <= self.end
        if self.log.log_end_offset < self.end:
            assert self.log.log_end_offset in (*self.starts, self.start)
            self.ends_at(self.log.log_end_offset, self.log.log_end_offset)

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 3000))
    def read_some(self, part: float, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start) * part)
        data = self.log.read(offset, max_bytes, limit=self.end).read_bytes()
        found = [header.base_offset for _, header in iter_headers(data)]
        reached = max([s for s in self.starts if s <= offset], default=0)
        expected = [s for s in self.starts if s >= reached] if offset < self.end else []
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)
        assert len(data) <= max_bytes or len(found) == 1

    @rule(timestamp=st.integers(NOW - 60, NOW + 10))
    def look_up_time(self, timestamp: int) -> None:
        found = at_once(self.log.offset_for_timestamp(timestamp))
        young = [r for r in self.records if r[1] >= timestamp and r[0] >= self.start]
        assert (found and (found.offset, found.timestamp, found.leader_epoch)) == (
            young[0][:3] if young else None
        )

    @invariant()
    def holds_what_was_written(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        data = log.read(self.start, 1 << 30, limit=self.end).read_bytes()
        records = [
            (record.offset, record.timestamp, header.partition_leader_epoch, record.value)
            for pos, header in iter_headers(data)
            for record in iter_records(data, pos, header)
            if record.offset >= self.start
        ]
        assert records == [r for r in self.records if r[0] >= self.start]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=100, stateful_step_count=30)
