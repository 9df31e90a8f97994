"""What a follower makes of its leader's answers, whatever leaders and lost tails there were."""

from random import Random

import pytest

from barnabas.broker.replication.follower import (
    Append,
    AskBounds,
    Retry,
    StartAgain,
    Step,
    Truncate,
    agreed_end,
    judge,
    judge_bounds,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchPartition
from barnabas.storage.log import Log
from barnabas.storage.mem_files import MemFiles
from barnabas.storage.truncation import start_again, truncate
from tests.unit.broker.replication.leader import answer
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
    """One fetch, and what follows from it."""
    told = answer(leader, wanted(follower), max_bytes)
    step = judge(follower, told)
    if isinstance(step, AskBounds):
        step = judge_bounds(follower, leader.log_start_offset, leader.log_end_offset)
    match step:
        case Append(records):
            follower.append_as_follower(records, now_ms=NOW)
            follower.advance_high_watermark(min(told.high_watermark, follower.log_end_offset))
        case Truncate(offset):
            truncate(follower, offset, now_ms=NOW).complete()
        case StartAgain(offset, records):
            start_again(follower, offset, now_ms=NOW).complete()
            follower.append_as_follower(records, now_ms=NOW)
    return step


def catch_up(follower: Log, leader: Log) -> None:
    """Fetch until there is nothing more; every fetch must come nearer."""
    for _ in range(200):
        step = fetch(follower, leader)
        if isinstance(step, Append) and not step.records:
            return
    pytest.fail(f"{follower} never agrees with {leader}")


def content(log: Log) -> bytes:
    end = log.log_end_offset
    return log.read(log.log_start_offset, 1 << 30, limit=end).read_bytes()


def assert_equal(follower: Log, leader: Log) -> None:
    assert content(follower) == content(leader)
    written = [each for each in leader.epochs.entries if each.start_offset < leader.log_end_offset]
    assert list(follower.epochs.entries) == written


def replicas(count: int) -> list[Log]:
    return [load(disk()) for _ in range(count)]


def write(log: Log, *values: bytes, epoch: int) -> None:
    """Append without committing."""
    for value in values:
        watermark = log.high_watermark
        put(log, value, epoch=epoch)
        log.high_watermark = watermark


def lead(log: Log, epoch: int) -> None:
    log.assign_leader_epoch(epoch)


def test_a_follower_that_restarts_with_a_stale_high_watermark_loses_nothing() -> None:
    # KIP-101, scenario 1: it used to cut its log to the high watermark it remembered.
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"m1", b"m2", epoch=0)
    catch_up(second, first)
    first.advance_high_watermark(2)
    assert second.high_watermark < 2
    # The second restarts, knows only its old high watermark; the leader dies before it answers.
    lead(second, 1)
    assert second.log_end_offset == 2
    catch_up(first, second)
    assert content(first) == content(second)
    assert first.log_end_offset == 2


def test_replicas_that_lost_different_tails_do_not_diverge() -> None:
    # KIP-101, scenario 2: both had offset 1, of different leaders.
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


def test_three_fast_fail_overs_do_not_diverge() -> None:
    # KIP-279: the new leader knows nothing of the follower's last epoch.
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


def test_an_epoch_that_only_the_follower_knows_takes_another_round() -> None:
    leader, follower = replicas(2)
    for epoch in (0, 2, 4):
        write(leader, b"x", b"y", epoch=epoch)
    write(follower, b"x", b"y", epoch=0)
    write(follower, b"p", b"q", epoch=1)
    write(follower, b"r", epoch=3)
    first = fetch(follower, leader)
    assert isinstance(first, Truncate)
    assert follower.epochs.latest_epoch == 1
    assert isinstance(fetch(follower, leader), Truncate)
    catch_up(follower, leader)
    assert_equal(follower, leader)


def test_a_leader_of_an_epoch_without_records_becomes_a_follower_again() -> None:
    first, second = replicas(2)
    lead(first, 0)
    write(first, b"a", epoch=0)
    catch_up(second, first)
    lead(first, 1)
    lead(second, 2)
    write(second, b"b", epoch=2)
    catch_up(first, second)
    assert_equal(first, second)


def test_a_diverging_answer_brings_no_records_and_no_high_watermark() -> None:
    # KAFKA-13141, on the side that asks: what comes with it is not of the follower's history.
    leader, follower = replicas(2)
    write(leader, b"x", epoch=2)
    write(follower, b"y", b"z", epoch=1)
    told = answer(leader, wanted(follower))
    told.high_watermark = 2
    assert judge(follower, told) == Truncate(0)


@pytest.mark.parametrize(
    ("epoch", "end", "agreed"),
    [(1, 3, 3), (1, 9, 4), (0, 1, 1), (0, 9, 2), (3, 99, 6), (2, 5, 4), (5, 4, 4)],
)
def test_how_much_two_logs_agree_on(epoch: int, end: int, agreed: int) -> None:
    log = load(disk())
    for each in (0, 0, 1, 1, 3, 3):
        write(log, b"x", epoch=each)
    assert agreed_end(log, EpochEndOffset(epoch=epoch, end_offset=end)) == agreed


def test_a_follower_behind_the_log_start_begins_there() -> None:
    leader, follower = replicas(2)
    write(leader, *(b"x" * 50 for _ in range(30)), epoch=0)
    leader.advance_high_watermark(30)
    leader.delete_records_before(20)
    assert fetch(follower, leader) == StartAgain(20)
    catch_up(follower, leader)
    assert content(follower) == content(leader)
    assert (follower.log_start_offset, follower.log_end_offset) == (20, 30)


def test_a_log_that_starts_within_a_batch_can_be_followed_from_nothing() -> None:
    leader, follower = replicas(2)
    put(leader, b"a", b"b", b"c")
    put(leader, b"d", epoch=0)
    leader.delete_records_before(2)
    assert fetch(follower, leader) == StartAgain(2)
    step = fetch(follower, leader)
    assert isinstance(step, StartAgain)
    assert step.offset == 0
    assert follower.log_end_offset == 4
    catch_up(follower, leader)
    follower.delete_records_before(leader.log_start_offset)
    assert content(follower) == content(leader)


def test_a_leader_that_has_less_after_an_unclean_election_is_followed() -> None:
    leader, follower = replicas(2)
    write(follower, b"x", b"y", b"z", epoch=0)
    write(leader, b"x", epoch=0)
    follower.epochs.clear()
    assert fetch(follower, leader) == Truncate(1)
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
def test_other_errors_wait_for_news(code: ErrorCode) -> None:
    leader, follower = replicas(2)
    told = answer(leader, wanted(follower))
    told.error_code = code
    assert judge(follower, told) == Retry(code)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_leaders_there_were_all_end_with_the_last_ones_log(seed: int) -> None:
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
            logs[unlucky] = _lost_tail(disks[unlucky], logs[unlucky], rng)
    last = logs[leader]
    lead(last, 99)
    for log in logs:
        if log is not last:
            catch_up(log, last)
            assert_equal(log, last)


def _lost_tail(files: MemFiles, log: Log, rng: Random) -> Log:
    """Power goes, and comes back: what was not flushed is gone, or some of it."""
    point = log.flush() if rng.random() < 0.5 else log.recovery_point
    files.crash(rng.randrange(1 << 30))
    return load(files, recovery_point=point)
