"""The follower's steps after its leader's answers, for any leader changes and lost log ends."""

from random import Random

import pytest

from barnabas.broker.replication.follower.follower_state import (
    Append,
    BoundsQuery,
    RestartLog,
    Retry,
    Step,
    Truncation,
    agreed_end,
    judge,
    judge_bounds,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchPartition
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import start_again, truncate
from tests.support.mem_files import MemFiles
from tests.unit.broker.replication.fake_leader import answer, content, lead, write
from tests.unit.storage.log_bench import NOW, disk, load, put


def wanted(log: Log) -> FetchPartition:
    return FetchPartition(
        partition=0,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=log.epochs.latest_epoch,
        log_start_offset=log.log_start_offset,
        partition_max_bytes=1 << 20,
    )


def fetch(follower: Log, leader: Log, max_bytes: int = 1 << 20) -> Step:
    """Fetch once, and carry out the resulting step."""
    told = answer(leader, wanted(follower), max_bytes)
    step = judge(follower, told)
    if isinstance(step, BoundsQuery):
        step = judge_bounds(follower, leader.log_start_offset, leader.log_end_offset)
    match step:
        case Append(records):
            follower.append_as_follower(records, now_ms=NOW)
            follower.advance_high_watermark(min(told.high_watermark, follower.log_end_offset))
        case Truncation(offset):
            truncate(follower, offset, now_ms=NOW).complete()
        case RestartLog(offset, records):
            start_again(follower, offset, now_ms=NOW).complete()
            follower.append_as_follower(records, now_ms=NOW)
    return step


def catch_up(follower: Log, leader: Log) -> None:
    """Fetch until the answer has no records; 200 fetches must be enough."""
    for _ in range(200):
        step = fetch(follower, leader)
        if isinstance(step, Append) and not step.records:
            return
    pytest.fail(f"{follower} never agrees with {leader}")


def assert_equal(follower: Log, leader: Log) -> None:
    assert content(follower) == content(leader)
    written = [each for each in leader.epochs.entries if each.start_offset < leader.log_end_offset]
    assert list(follower.epochs.entries) == written


def replicas(count: int) -> list[Log]:
    return [load(disk()) for _ in range(count)]


def test_follower_restarting_with_a_stale_high_watermark_loses_nothing() -> None:
    # KIP-101, scenario 1: it used to truncate its log to its remembered high watermark.
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"m1", b"m2", epoch=0)
    catch_up(second, first)
    first.advance_high_watermark(2)
    assert second.high_watermark < 2
    # The second restarts with its old high watermark; the leader crashes before it answers.
    lead(second, 1)
    assert second.log_end_offset == 2
    catch_up(first, second)
    assert content(first) == content(second)
    assert first.log_end_offset == 2


def test_replicas_that_lost_different_log_ends_do_not_diverge() -> None:
    # KIP-101, scenario 2: both had offset 1, from different leaders.
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"m1", epoch=0)
    catch_up(second, first)
    write(first, b"m2 of epoch 0", epoch=0)
    lead(second, 1)
    write(second, b"m3 of epoch 1", epoch=1)
    assert first.log_end_offset == second.log_end_offset
    catch_up(first, second)
    assert_equal(first, second)


def test_three_fast_failovers_do_not_diverge() -> None:
    # KIP-279: the new leader does not know the follower's last epoch.
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"a", b"b", epoch=0)
    catch_up(second, first)
    lead(second, 1)
    write(second, b"lost in epoch 1", epoch=1)
    lead(first, 2)
    write(first, b"c", b"d", b"e", epoch=2)
    catch_up(second, first)
    assert_equal(second, first)
    assert second.log_end_offset == 5


def test_epoch_unknown_to_the_leader_takes_another_truncation() -> None:
    leader, follower = replicas(2)
    for epoch in (0, 2, 4):
        write(leader, b"x", b"y", epoch=epoch)
    write(follower, b"x", b"y", epoch=0)
    write(follower, b"p", b"q", epoch=1)
    write(follower, b"r", epoch=3)
    first = fetch(follower, leader)
    assert isinstance(first, Truncation)
    assert follower.epochs.latest_epoch == 1
    assert isinstance(fetch(follower, leader), Truncation)
    catch_up(follower, leader)
    assert_equal(follower, leader)


def test_leader_of_an_epoch_without_records_becomes_a_follower_again() -> None:
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"a", epoch=0)
    catch_up(second, first)
    lead(first, 1)
    lead(second, 2)
    write(second, b"b", epoch=2)
    catch_up(first, second)
    assert_equal(first, second)


def test_diverging_answer_brings_no_records_and_no_high_watermark() -> None:
    # KAFKA-13141, on the follower's side: the other fields do not belong to its history.
    leader, follower = replicas(2)
    write(leader, b"x", epoch=2)
    write(follower, b"y", b"z", epoch=1)
    told = answer(leader, wanted(follower))
    told.high_watermark = 2
    assert judge(follower, told) == Truncation(0)


@pytest.mark.parametrize(
    ("epoch", "end", "agreed"),
    [(1, 3, 3), (1, 9, 4), (0, 1, 1), (0, 9, 2), (3, 99, 6), (2, 5, 4), (5, 4, 4)],
)
def test_agreed_end_of_two_logs(epoch: int, end: int, agreed: int) -> None:
    log = load(disk())
    for each in (0, 0, 1, 1, 3, 3):
        write(log, b"x", epoch=each)
    assert agreed_end(log, EpochEndOffset(epoch=epoch, end_offset=end)) == agreed


def test_follower_behind_the_log_start_restarts_there() -> None:
    leader, follower = replicas(2)
    write(leader, *(b"x" * 50 for _ in range(30)), epoch=0)
    leader.advance_high_watermark(30)
    leader.delete_records_before(20)
    assert fetch(follower, leader) == RestartLog(20)
    catch_up(follower, leader)
    assert content(follower) == content(leader)
    assert (follower.log_start_offset, follower.log_end_offset) == (20, 30)


def test_empty_follower_replicates_a_log_that_starts_within_a_batch() -> None:
    leader, follower = replicas(2)
    put(leader, b"a", b"b", b"c")
    put(leader, b"d", epoch=0)
    leader.delete_records_before(2)
    assert fetch(follower, leader) == RestartLog(2)
    step = fetch(follower, leader)
    assert isinstance(step, RestartLog)
    assert step.offset == 0
    assert follower.log_end_offset == 4
    catch_up(follower, leader)
    follower.delete_records_before(leader.log_start_offset)
    assert content(follower) == content(leader)


def test_follower_truncates_to_a_shorter_leader_after_an_unclean_election() -> None:
    leader, follower = replicas(2)
    write(follower, b"x", b"y", b"z", epoch=0)
    write(leader, b"x", epoch=0)
    follower.epochs.clear()
    assert fetch(follower, leader) == Truncation(1)
    catch_up(follower, leader)
    assert content(follower) == content(leader)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_other_errors_are_retried(code: ErrorCode) -> None:
    leader, follower = replicas(2)
    told = answer(leader, wanted(follower))
    told.error_code = code
    assert judge(follower, told) == Retry(code)


@pytest.mark.parametrize("seed", range(150))
def test_random_leader_changes_end_with_the_last_leaders_log(seed: int) -> None:
    rng = Random(seed)
    disks = [disk() for _ in range(3)]
    for each in disks:
        each.sync_dir("/data")
    logs = [load(each) for each in disks]
    leader = 0
    for epoch in range(rng.randrange(2, 12)):
        leader = rng.randrange(3)
        lead(logs[leader], epoch)
        for _ in range(rng.randrange(6)):
            write(logs[leader], rng.randbytes(rng.randrange(1, 90)), epoch=epoch)
            follower = rng.randrange(3)
            if follower != leader and rng.random() < 0.7:
                fetch(logs[follower], logs[leader], rng.randrange(1, 600))
        if rng.random() < 0.3:
            unlucky = rng.randrange(3)
            logs[unlucky] = _after_power_loss(disks[unlucky], logs[unlucky], rng)
    last = logs[leader]
    lead(last, 99)
    for log in logs:
        if log is not last:
            catch_up(log, last)
            assert_equal(log, last)


def _after_power_loss(files: MemFiles, log: Log, rng: Random) -> Log:
    """Crash the machine: all or some of the unflushed records are lost."""
    point = log.flush() if rng.random() < 0.5 else log.recovery_point
    files.crash(rng.randrange(1 << 30))
    return load(files, recovery_point=point)
