"""A seeded workload on a broker's logs, on a disk that crashes, and checks of its promises."""

import errno
import sys
from dataclasses import dataclass, field
from random import Random

from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.files.errors import LogDirFailed, OutOfDescriptors
from barnabas.storage.log.log import Log
from barnabas.storage.log.record_steps import at_once
from barnabas.storage.log.trim import drop_old_segments
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.opening.dir_marks import BrokerIdentity
from barnabas.storage.opening.log_manager import LogManager
from barnabas.storage.producers.entry import BatchMetadata
from barnabas.storage.producers.state import ProducerStateManager
from tests.support.mem_files import Fault, MemFile, MemFiles

SMALL = TopicConfig(
    segment_bytes=1200,
    segment_index_bytes=120,
    index_interval_bytes=150,
    retention_bytes=5000,
    flush_messages=1,
    file_delete_delay_ms=5,
)
PARTITIONS = (("orders", 0), ("orders", 1), ("lazy", 0))
PRODUCERS = (11, 12)
HOUR = 3_600_000


@dataclass
class Expected:
    """The content that a partition's log must have, by the history of the workload."""

    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    start: int = 0
    durable: int = 0
    epoch: int = 0
    topic_id: bytes = bytes(16)
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return max(self.start, self.batches[-1][0].next_offset) if self.batches else self.start

    def cut(self, offset: int) -> None:
        self.batches = [b for b in self.batches if b[0].next_offset <= offset]
        if not self.batches:
            self.start = min(self.start, offset)
        self.durable = min(self.durable, self.end)
        self.sequences = {}
        for header, _ in self.batches:
            if header.has_producer:
                self.sequences[header.producer_id] = header.last_sequence + 1


class Rig:
    """A workload and its checks; `Violation` names the broken promise."""

    def __init__(
        self,
        seed: int,
        files: MemFiles | None = None,
        *,
        faulty: bool = False,
        starving: bool = False,
    ) -> None:
        """`faulty`: calls fail, as on a broken disk. `starving`: opens find no descriptor."""
        self.seed = seed
        self.rng = Random(seed)
        self.files = files or MemFiles()
        self.now_ms = 1_000_000
        self.expected: dict[tuple[str, int], Expected] = {}
        self.counts: dict[str, int] = {}
        self.unsure: tuple[str, int] | None = None
        self.unsure_action = ""
        self.faulty = faulty
        self.starving = starving
        self.struck: list[str] = []
        self.manager = self.open()

    def config(self, topic: str) -> TopicConfig:
        if topic == "lazy":
            return SMALL.replace(flush_messages=2**63 - 1)
        return SMALL

    def open(self) -> LogManager:
        self.manager = LogManager(
            self.files,
            ["/data/a", "/data/b"],
            BrokerIdentity(1, "cluster", "boot"),
            now_ms=lambda: self.now_ms,
            rng=Random(self.seed),
            producer_expiration_ms=lambda: HOUR * 1000,
        )
        self.manager.open(self.config)
        self.manager.acknowledge_last_run()
        for topic, partition in PARTITIONS:
            self.log(topic, partition)
        return self.manager

    def log(self, topic: str, partition: int) -> Log:
        expected = self.expected.setdefault((topic, partition), Expected())
        log = self.manager.get(topic, partition)
        if log is not None and log.topic_id != expected.topic_id:
            # The log was deleted before the crash: the broker knows it by its id.
            self.manager.delete(topic, partition)
            log = None
        if log is None:
            log = self.manager.create(topic, partition, expected.topic_id, self.config(topic))
            log.assign_leader_epoch(0)
        return log

    # --- the workload

    def run(self, steps: int) -> None:
        actions = (
            [self.append] * 10
            + [self.flush] * 4
            + [self.checkpoint, self.roll, self.retention, self.delete_records, self.new_epoch]
            + [self.truncate, self.remove_files]
            + [self.restart, self.kill, self.power_loss]
        )
        rare = [self.start_again, self.recreate]
        for _ in range(steps):
            self.now_ms += self.rng.randrange(100)
            action = self.rng.choice(actions + rare if self.rng.random() < 0.1 else actions)
            key = self.rng.choice(PARTITIONS)
            self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1
            try:
                action(*key)
            except OutOfDescriptors:
                self.starve(*key)
            except LogDirFailed:
                self.counts["failed"] = self.counts.get("failed", 0) + 1
                # The disk failed in the middle of the action: the log may be the old or the new
                # one.
                self.unsure, self.unsure_action = key, action.__name__
                self.rng.choice((self.kill, self.power_loss))(*key)

    def starve(self, topic: str, partition: int) -> None:
        """Check that an action without a descriptor has changed nothing."""
        self.counts["starved"] = self.counts.get("starved", 0) + 1
        self.struck += [fault.call for fault in self.files.faults if fault.hits]
        check(not any(each.failure for each in self.manager.dirs), "a directory went offline")
        self.verify(self.log(topic, partition), self.expected[topic, partition], exact=True)
        self.files.faults[:] = [shortage(self.rng)]

    def append(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        size = self.rng.choice((10, 60, 200))
        producer = self.rng.choice((-1, *PRODUCERS))
        count, sequence = self.rng.randrange(1, 4), expected.sequences.get(producer, 0)
        records = [
            Record(i, self.now_ms - self.rng.randrange(50), b"k", self.rng.randbytes(size))
            for i in range(count)
        ]
        ids = (
            {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            if producer > 0
            else {}
        )
        data = bytearray(build_batch(records, base_offset=0, **ids))
        appended = log.append(data, leader_epoch=expected.epoch, now_ms=self.now_ms)
        check(not appended.duplicate, "a new batch was taken for a duplicate")
        check(appended.first_offset == expected.end, f"{log} appended at {appended}")
        (_, header), *_ = iter_headers(data)
        expected.batches.append((header, bytes(data)))
        if producer > 0:
            expected.sequences[producer] = sequence + count
        log.advance_high_watermark(log.log_end_offset)

    def flush(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        job = log.begin_flush()
        if self.rng.random() < 0.3:
            self.append(topic, partition)
        job.run()
        log.finish_flush(job)
        expected.durable = max(expected.durable, log.flushed_offset)

    def checkpoint(self, *_: object) -> None:
        for job in map(self.manager.begin_checkpoint, self.manager.online_dirs):
            job.run()
            self.manager.finish_checkpoint(job)

    def roll(self, topic: str, partition: int) -> None:
        self.log(topic, partition).roll(now_ms=self.now_ms)

    def retention(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        dropped = drop_old_segments(log, now_ms=self.now_ms)
        # Also half-way: the next change of the log completes it, or a crash leaves it there.
        if dropped is not None and self.now_ms % 3:
            dropped.run()
            if self.now_ms % 3 == 2:
                dropped.complete()
        expected.start = max(expected.start, log.log_start_offset)

    def delete_records(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        log.delete_records_before(offset)
        expected.start = max(expected.start, offset)

    def new_epoch(self, topic: str, partition: int) -> None:
        expected = self.expected[topic, partition]
        expected.epoch += 1
        self.log(topic, partition).assign_leader_epoch(expected.epoch)

    def truncate(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        truncate(log, offset, now_ms=self.now_ms).complete()
        check(log.log_end_offset <= offset, f"{log} was not truncated to {offset}")
        expected.cut(offset)
        # A batch that reaches over the log start is dropped whole.
        expected.start = min(expected.start, log.log_end_offset)
        expected.durable = min(expected.durable, expected.end)
        expected.epoch += 1
        self.verify(log, expected, exact=True)

    def start_again(self, topic: str, partition: int) -> None:
        log, expected = self.log(topic, partition), self.expected[topic, partition]
        offset = max(0, log.log_end_offset + self.rng.choice((-20, 0, 20)))
        start_again(log, offset, now_ms=self.now_ms).complete()
        self.expected[topic, partition] = Expected(
            start=offset,
            durable=offset,
            epoch=expected.epoch + 1,
            topic_id=expected.topic_id,
        )

    def recreate(self, topic: str, partition: int) -> None:
        self.log(topic, partition)
        self.manager.delete(topic, partition)
        self.expected[topic, partition] = Expected(topic_id=self.rng.randbytes(16))
        self.log(topic, partition)

    def remove_files(self, *_: object) -> None:
        self.manager.remove(self.manager.due_removals())

    # --- endings

    def restart(self, *_: object) -> None:
        ends = {key: each.end for key, each in self.expected.items()}
        self.manager.close()
        starved = self.starving and any(fault.hits for fault in self.files.faults)
        if not starved and all(log_dir.failure is None for log_dir in self.manager.dirs):
            for key, expected in self.expected.items():
                expected.durable = ends[key]
        self.reopen(exact=True)

    def kill(self, *_: object) -> None:
        self.manager.abandon()
        self.files.kill()
        self.reopen(exact=not self.counts.get("failed"))

    def power_loss(self, *_: object) -> None:
        self.manager.abandon()
        self.files.crash(self.rng.randrange(2**32))
        self.reopen(exact=False)

    def reopen(self, *, exact: bool) -> None:
        self.struck += [fault.call for fault in self.files.faults if fault.hits]
        self.files.faults.clear()
        self.open()
        for (topic, partition), expected in self.expected.items():
            log = self.log(topic, partition)
            if self.unsure == (topic, partition):
                self.adopt(log, expected)
            self.verify(log, expected, exact=exact)
            # The log start is checkpointed only now and then: it may be an older one.
            expected.start = log.log_start_offset
            expected.cut(log.log_end_offset)
            expected.epoch += 1
            log.assign_leader_epoch(expected.epoch)
            log.advance_high_watermark(log.log_end_offset)
        self.unsure = None
        if self.faulty:
            self.files.faults.append(random_fault(self.rng))
        if self.starving:
            self.files.faults.append(shortage(self.rng))

    def adopt(self, log: Log, expected: Expected) -> None:
        """Take the log as it is for what was written, unless durable records are missing."""
        found = log.read(log.log_start_offset, 2**31, limit=log.log_end_offset).read_bytes()
        batches = [(h, found[pos : pos + h.size]) for pos, h in iter_headers(found)]
        if self.unsure_action == "append":
            written = [data for header, data in expected.batches]
            check(log.log_end_offset >= expected.durable, f"{log} lost {expected.durable}")
            check(
                all(data in written for _, data in batches[:-1]),
                f"{log} changed before the batch whose append failed",
            )
        first = batches[0][0].base_offset if batches else log.log_start_offset
        expected.batches = [b for b in expected.batches if b[0].base_offset < first] + batches
        expected.start = log.log_start_offset
        expected.durable = min(expected.durable, log.log_end_offset)

    def verify(self, log: Log, expected: Expected, *, exact: bool) -> None:
        faults = self.files.faults[:]
        if self.starving:
            # A read without a descriptor may be short.
            self.files.faults.clear()
        self._verify(log, expected, exact=exact)
        self.files.faults[:] = faults

    def _verify(self, log: Log, expected: Expected, *, exact: bool) -> None:
        end, start = log.log_end_offset, log.log_start_offset
        check(end >= expected.durable, f"{log} lost records: {expected.durable} were durable")
        check(end <= expected.end, f"{log} has records that were never written: {expected.end}")
        if exact:
            check(end == expected.end, f"{log} lost records of a dead process: {expected.end}")
        check(start <= max(expected.start, end), f"{log} lost its beginning: {expected.start}")
        history = {header.base_offset: (header, data) for header, data in expected.batches}
        found = log.read(start, 2**31, limit=end).read_bytes()
        at = start
        for pos, header in iter_headers(found):
            known, data = history[header.base_offset]
            check(data == found[pos : pos + header.size], f"{log} changed {known}")
            check(header.base_offset <= at, f"{log} has a hole at {at}")
            check(
                log.epochs.epoch_for_offset(header.last_offset) == header.partition_leader_epoch,
                f"{log} has {log.epochs.entries} for {header}",
            )
            at = header.next_offset
        check(at == end, f"{log} ends at {at}")
        self.verify_lookups(log, expected)
        self.verify_producers(log, expected)

    def verify_lookups(self, log: Log, expected: Expected) -> None:
        there = [b for b in expected.batches if b[0].next_offset <= log.log_end_offset]
        there = [b for b in there if b[0].last_offset >= log.log_start_offset]
        if not there:
            return
        header, data = self.rng.choice(there)
        offset = max(log.log_start_offset, self.rng.randint(header.base_offset, header.last_offset))
        got = log.read(offset, 1, limit=log.log_end_offset).read_bytes()
        check(got == data, f"{log} read something else at {offset}")
        found = at_once(log.offset_for_timestamp(header.max_timestamp))
        check(
            header.base_offset < log.log_start_offset
            or (found is not None and found.timestamp >= header.max_timestamp),
            f"{log} did not find {header.max_timestamp}",
        )

    def verify_producers(self, log: Log, expected: Expected) -> None:
        replayed = ProducerStateManager()
        for header, data in expected.batches:
            if header.next_offset <= log.log_end_offset:
                replayed.replay(data, [(0, header)])
        for entry in replayed:
            start = log.log_start_offset
            seen = tuple(b for b in entry.batches if BatchMetadata(*b).first_offset >= start)
            if not seen:
                continue
            state = log.producers.entry(entry.producer_id)
            check(state is not None, f"{log} forgot producer {entry.producer_id}")
            assert state is not None
            check(
                state.batches[-len(seen) :] == seen,
                f"{log} remembers {state.batches}, not {seen}",
            )
        for state in log.producers:
            for batch in map(BatchMetadata._make, state.batches):
                check(batch.last_offset < log.log_end_offset, f"{log} remembers lost {batch}")


class Violation(AssertionError):
    """A broken promise."""


def check(kept: bool, promise: str) -> None:
    if not kept:
        raise Violation(promise)


FAULTY_CALLS = ("append", "sync", "sync_dir", "truncate", "rename", "unlink", "open", "make_dir")


def random_fault(rng: Random) -> Fault:
    return Fault(
        rng.choice(FAULTY_CALLS),
        suffix=rng.choice(("", "", ".log", ".index")),
        nth=rng.randrange(1, 25),
        written=rng.randrange(100),
    )


def shortage(rng: Random) -> Fault:
    return Fault(
        rng.choice(("open", "open", "open", "sync_dir")),
        suffix=rng.choice(("", "", ".log", "index", "snapshot")),
        nth=rng.randrange(1, 12),
        error=rng.choice((errno.EMFILE, errno.ENFILE)),
    )


_HELPERS = {"write_atomic", "write_lines", "write_offsets", "LogDir._write"}


class WatchedFiles(MemFiles):
    """Files that record which code asks for durability, and that ignore the calls of one site."""

    def __init__(self, ignored: str = "") -> None:
        super().__init__()
        self.ignored = ignored
        self.sites: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> MemFile:
        file = super().open(path, create=create)
        return WatchedFile(self, path, file._content)

    def sync_dir(self, path: str) -> None:
        if self.is_obeyed("sync_dir"):
            super().sync_dir(path)

    def is_obeyed(self, call: str) -> bool:
        frame = sys._getframe(2)
        while frame.f_code.co_qualname in _HELPERS and frame.f_back is not None:
            frame = frame.f_back
        site = f"{call} in {frame.f_code.co_qualname}"
        self.sites.add(site)
        return site != self.ignored


class WatchedFile(MemFile):
    __slots__ = ()

    _files: WatchedFiles

    def sync(self) -> None:
        if self._files.is_obeyed("sync"):
            super().sync()

    def truncate(self, size: int) -> None:
        if self._files.is_obeyed("truncate"):
            super().truncate(size)
