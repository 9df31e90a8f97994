"""A follower's log: equal to its leader's byte for byte, and truncated off the event loop."""

from random import Random

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.origin import Origin
from tests.support.mem_files import Fault, MemFiles
from tests.support.planted import batch_of
from tests.unit.storage.log_bench import DIRECTORY, NOW, disk, load, offsets, put

REPLICATED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".window", "-checkpoint")


def files_of(files: MemFiles) -> dict[str, bytes]:
    """Return the files of a log's directory that must be the same on every replica."""
    names = [name for name in files.listdir(DIRECTORY) if name.endswith(REPLICATED)]
    return {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in names}


class Producers:
    """Idempotent and transactional producers of one partition."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._sequences = dict.fromkeys(range(4), 0)
        self._open: set[int] = set()

    def step(self, leader: Log, epoch: int) -> None:
        producer = self._rng.randrange(4)
        ids = {"producer_id": producer, "producer_epoch": 0}
        if producer in self._open and self._rng.random() < 0.4:
            kind = self._rng.choice((ControlType.ABORT, ControlType.COMMIT))
            ended = [producer, *(each for each in sorted(self._open) if self._rng.random() < 0.5)]
            for each in dict.fromkeys(ended):
                marker = TxnMarker(each, 0, 0, bool(kind)).packed(NOW)[0]
                leader.append(marker, epoch, NOW, Origin.COORDINATOR)
                self._open.discard(each)
            return
        values = [self._rng.randbytes(self._rng.randrange(1, 60)) for _ in range(3)]
        transactional = producer < 3
        put(
            leader, *values, epoch=epoch, base_sequence=self._sequences[producer],
            transactional=transactional, **ids,
        )  # fmt: skip
        self._sequences[producer] += 3
        if transactional:
            self._open.add(producer)


def replicate(leader: Log, follower: Log, rng: Random) -> None:
    """Fetch once, an arbitrary number of bytes, and append it in pieces of arbitrary size."""
    end = leader.log_end_offset
    data = leader.read(follower.log_end_offset, rng.randrange(1, 4000), limit=end).read_bytes()
    taken = 0
    while taken < len(data):
        taken += follower.append_as_follower(
            data[taken:], now_ms=NOW, max_batches=rng.randrange(1, 9)
        )
    follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))
    start = min(leader.log_start_offset, follower.high_watermark)
    follower.delete_records_before(start)


@pytest.mark.parametrize("seed", range(40))
def test_follower_has_the_same_files_as_its_leader(seed: int) -> None:
    rng, epoch = Random(seed), 0
    disks = disk(), disk()
    leader, follower = (load(each) for each in disks)
    producers = Producers(rng)
    for _ in range(rng.randrange(50, 200)):
        if rng.random() < 0.03:
            epoch += 1
            leader.assign_leader_epoch(epoch)
        producers.step(leader, epoch)
        if rng.random() < 0.3:
            replicate(leader, follower, rng)
            leader.advance_high_watermark(follower.log_end_offset)
        if rng.random() < 0.02:
            leader.delete_records_before(rng.randint(0, follower.log_end_offset))
    while follower.log_end_offset < leader.log_end_offset:
        replicate(leader, follower, rng)
    leader.advance_high_watermark(leader.log_end_offset)
    replicate(leader, follower, rng)
    assert len(leader.segments) > 3
    for log in (leader, follower):
        log.close()
    ours, theirs = (files_of(each) for each in disks)
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if theirs[name] != ours[name]] == []


def test_txn_index_of_a_follower_ignores_transactions_that_began_after_the_marker() -> None:
    # A transaction that began later, and is in the same response, would change the entry's last
    # stable offset.
    leader, follower = load(disk(), TopicConfig()), load(disk(), TopicConfig())
    ids = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    put(leader, b"first")
    follower.append_as_follower(leader.read(0, 1000, limit=1).read_bytes(), now_ms=NOW)
    put(leader, b"aborted", base_sequence=0, **ids)
    marker = TxnMarker(1, 0, 0, False).packed(NOW)[0]
    leader.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    put(leader, b"in between")
    put(leader, b"next", base_sequence=1, **ids)
    data = leader.read(1, 1000, limit=5).read_bytes()
    assert follower.append_as_follower(data, now_ms=NOW) == len(data)
    assert follower.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5)


def test_follower_refuses_a_batch_that_ends_before_it_begins() -> None:
    follower = load(disk())
    lie = batch_of(b"", 0, partition_leader_epoch=0)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(lie, now_ms=NOW)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 0


def test_truncation_to_the_end_drops_an_epoch_without_records() -> None:
    # Otherwise the next leader, which does not have this epoch, finds the log diverging for ever.
    log = load(disk())
    put(log, b"a", epoch=1)
    log.assign_leader_epoch(2)
    assert log.epochs.latest_epoch == 2
    truncate(log, 1, now_ms=NOW).complete()
    assert log.epochs.latest_epoch == 1
    assert log.log_end_offset == 1


def test_a_truncated_log_is_neither_read_nor_flushed_while_a_thread_works() -> None:
    files = disk()
    log = load(files)
    for value in range(30):
        put(log, bytes([value]) * 60)
    job = log.begin_flush()
    cut = truncate(log, 10, now_ms=NOW)
    steps = 0
    while not cut.done:
        steps += 1
        assert not log.is_whole
        with pytest.raises(KafkaError) as refused:
            log.read(0, 100, limit=5)
        assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
        cut.run()
        if steps == 1:
            # The flush began before, and covers records that do not exist any more.
            job.run()
            log.finish_flush(job)
            assert log.flushed_offset <= 10
        cut.advance()
    assert steps >= 2
    assert log.is_whole
    assert offsets(log) == list(range(10))
    assert log.flushed_offset <= 10


@pytest.mark.parametrize("step", range(3))
def test_abandoned_log_is_not_changed_by_the_rest_of_a_truncation(step: int) -> None:
    files = disk()
    log = load(files)
    for value in range(30):
        put(log, bytes([value]) * 60)
    cut = truncate(log, 10, now_ms=NOW)
    for _ in range(step):
        cut.run()
        cut.advance()
    log.abandon()
    before = files_of(files)
    while not cut.done:
        cut.run()
        cut.advance()
    assert files_of(files) == before


def test_disk_error_during_a_truncation_takes_the_directory_offline() -> None:
    files = disk()
    log = load(files)
    for value in range(30):
        put(log, bytes([value]) * 60)
    files.faults.append(Fault("sync", suffix=".log"))
    with pytest.raises(LogDirFailed):
        truncate(log, 10, now_ms=NOW).complete()
    assert log.log_dir.failure is not None


@pytest.mark.parametrize("offset", [0, 10, 100])
def test_log_that_starts_again_accepts_its_leaders_batches(offset: int) -> None:
    files = disk()
    log, leader = load(files), load(disk())
    for value in range(30):
        put(log, bytes([value]) * 60)
    start_again(leader, offset, now_ms=NOW).complete()
    put(leader, b"a", b"b", epoch=3)
    data = leader.read(offset, 1000, limit=leader.log_end_offset).read_bytes()
    start_again(log, offset, now_ms=NOW).complete()
    log.append_as_follower(data, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    assert offsets(log, offset) == [offset]
    assert log.epochs.entries == leader.epochs.entries
    log.flush()
    files.kill()
    assert load(files).log_end_offset == offset + 2
