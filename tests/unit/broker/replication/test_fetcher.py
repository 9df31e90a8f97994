"""The fetcher: sessions, errors, connections and the quota."""

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.storage.log.log import Log
from tests.support.mem_files import Fault
from tests.support.waiting import eventually
from tests.unit.broker.replication.fake_leader import content, lead
from tests.unit.broker.replication.follower_broker import (
    KEY,
    ME,
    FollowerBroker,
    Leader,
    add,
    equal,
    led,
)


async def test_follower_takes_over_records_high_watermark_and_log_start(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    add(leader, log, *(b"x" * 100 for _ in range(50)))
    await eventually(equal(partition, log))
    assert partition.high_watermark == 0
    log.advance_high_watermark(40)
    log.delete_records_before(7)
    leader.changed()
    await eventually(lambda: partition.high_watermark == 40)
    assert partition.log.log_start_offset == 7
    whole = len(content(make_whole(log)))
    assert broker.metrics.bytes_in.cell().value == whole
    assert broker.metrics.reassignment_bytes_in.cell().value == whole
    request = leader.requests[0]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, 77)
    assert request.isolation_level == 0
    assert (request.max_wait_ms, request.max_bytes) == (20, 10 << 20)
    await eventually(lambda: log_start_told(leader) == 7)


def make_whole(log: Log) -> Log:
    log.log_start_offset = 0
    return log


def log_start_told(leader: Leader) -> int:
    told = [each for request in leader.requests for topic in request.topics
            for each in topic.partitions]  # fmt: skip
    return told[-1].log_start_offset


async def test_session_of_quiet_partitions_sends_empty_requests(
    leader: Leader, broker: FollowerBroker
) -> None:
    logs = [led(leader, index) for index in range(30)]
    partitions = [broker.partition(index) for index in range(30)]
    for partition in partitions:
        broker.follow(partition)
    await eventually(lambda: len(leader.requests) > 3)
    first, *later = leader.requests
    assert sum(len(topic.partitions) for topic in first.topics) == 30
    assert first.session_epoch == 0
    assert not any(request.topics or request.forgotten_topics_data for request in later)
    add(leader, logs[4], b"news")
    seen = len(leader.requests)
    await eventually(lambda: len(leader.requests) > seen + 2)
    told = [[each.partition for topic in request.topics for each in topic.partitions]
            for request in leader.requests[seen:]]  # fmt: skip
    assert sorted(told, reverse=True)[:2] == [[4], []]
    assert broker.fetchers.unfollow(partitions[3]) is None
    seen = len(leader.requests)
    await eventually(lambda: len(leader.requests) > seen + 1)
    forgotten = [each.partitions for request in leader.requests[seen:]
                 for each in request.forgotten_topics_data]  # fmt: skip
    assert forgotten == [[3]]


async def test_session_dropped_by_the_leader_begins_again(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    await eventually(lambda: len(leader.requests) > 2)
    leader.drop_session()
    add(leader, log, b"after")
    await eventually(equal(partition, log))
    leader.session_epoch += 5
    add(leader, log, b"and after that")
    await eventually(equal(partition, log))


async def test_unreachable_leader_is_retried_until_it_is_back(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    leader.reachable = False
    broker.follow(partition)
    await eventually(lambda: leader.tries > 2)
    leader.reachable = True
    add(leader, log, b"a")
    await eventually(equal(partition, log))
    leader.reachable = False
    leader.changed()
    add(leader, log, b"b")
    leader.reachable = True
    await eventually(equal(partition, log))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_error_of_one_partition_does_not_block_others(
    leader: Leader, broker: FollowerBroker, code: ErrorCode
) -> None:
    good, bad = led(leader, 0), led(leader, 1)
    partitions = [broker.partition(index) for index in range(2)]
    leader.errors[KEY[0], 1] = code
    for partition in partitions:
        broker.follow(partition)
    add(leader, good, b"a")
    add(leader, bad, b"b")
    await eventually(equal(partitions[0], good))
    assert partitions[1].log.log_end_offset == 0
    del leader.errors[KEY[0], 1]
    await eventually(equal(partitions[1], bad))


async def test_follower_appends_only_in_the_epoch_announced_by_the_controller(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader, epoch=3), broker.partition()
    broker.follow(partition, epoch=2)
    add(leader, log, b"a", epoch=3)
    await eventually(lambda: len(leader.requests) > 2)
    assert partition.log.log_end_offset == 0
    broker.follow(partition, epoch=3)
    await eventually(equal(partition, log))


async def test_damaged_answer_is_fetched_again(leader: Leader, broker: FollowerBroker) -> None:
    log, partition = led(leader), broker.partition()
    spoiled = 0

    def spoil(answer: PartitionData) -> None:
        nonlocal spoiled
        if answer.records and not spoiled:
            spoiled += 1
            data = bytearray(answer.records)
            data[-1] ^= 1
            answer.records = bytes(data)

    leader.spoil = spoil
    broker.follow(partition)
    add(leader, log, b"a", b"b")
    await eventually(equal(partition, log))
    assert spoiled == 1


async def test_failed_log_dir_affects_only_its_partitions(
    leader: Leader, broker: FollowerBroker
) -> None:
    first, second = led(leader, 0), led(leader, 1)
    on_bad, on_good = broker.partition(0, path="/bad"), broker.partition(1)
    broker.files.faults.append(Fault("append", suffix=".log"))
    broker.follow(on_bad)
    add(leader, first, b"a")
    await eventually(lambda: on_bad.log.log_dir.failure is not None)
    broker.follow(on_good)
    add(leader, second, b"b")
    await eventually(equal(on_good, second))


async def test_session_without_partitions_is_not_continued(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, first = led(leader), broker.partition()
    broker.follow(first)
    await eventually(lambda: len(leader.requests) > 2)
    broker.fetchers.unfollow(first)
    await eventually(lambda: not leader.in_flight)
    second = led(leader, 1)
    seen = len(leader.requests)
    follower = broker.partition(1)
    broker.follow(follower)
    add(leader, second, b"a")
    add(leader, log, b"not followed")
    await eventually(equal(follower, second))
    assert leader.requests[seen].session_epoch == 0


async def test_out_of_sync_partitions_wait_for_the_quota(leader: Leader) -> None:
    broker = FollowerBroker(
        leader,
        follower_replication_throttled_rate="1000",
        replication_quota_window_num="2",
    )
    broker.topic_config = TopicConfig(follower_replication_throttled_replicas=(f"0:{ME}",))
    log, free = led(leader, 0), led(leader, 1)
    partitions = [broker.partition(index) for index in range(2)]
    add(leader, log, *(b"x" * 400 for _ in range(20)))
    log.advance_high_watermark(20)
    broker.follow(partitions[0])
    await eventually(equal(partitions[0], log))
    add(leader, log, b"y")
    log.advance_high_watermark(21)
    # It counts as in sync until it learns of more records. After that only the throttled ones wait.
    await eventually(lambda: partitions[0].log.log_end_offset == 21)
    broker.follow(partitions[0], epoch=1)
    leader.epochs[KEY] = 1
    lead(log, 1)
    add(leader, log, b"z", epoch=1)
    broker.follow(partitions[1])
    add(leader, free, b"free")
    await eventually(equal(partitions[1], free))
    assert partitions[0].log.log_end_offset == 21
    broker.clock.ahead += 10.0
    await eventually(equal(partitions[0], log))
    await broker.stop()


async def test_partitions_are_redistributed_when_the_number_of_fetchers_changes(
    leader: Leader, broker: FollowerBroker
) -> None:
    partitions = [broker.partition(index) for index in range(4)]
    logs = [led(leader, index) for index in range(4)]
    for partition in partitions:
        broker.follow(partition)
    assert leader.connections == 1
    broker.config = broker.config.replace(num_replica_fetchers=2)
    await broker.fetchers.resize()
    assert leader.connections == 2
    broker.config = broker.config.replace(num_replica_fetchers=1)
    await broker.fetchers.resize()
    assert leader.connections == 1
    for partition, log in zip(partitions, logs, strict=True):
        add(leader, log, b"x")
        await eventually(equal(partition, log))


async def test_lag_counts_committed_records_that_are_missing_here(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    assert (broker.fetchers.max_lag, broker.fetchers.min_fetch_rate) == (0, 0.0)
    broker.follow(partition)

    def drop_records(answer: PartitionData) -> None:
        answer.records = b""

    leader.spoil = drop_records
    add(leader, log, b"a", b"b", b"c")
    log.advance_high_watermark(3)
    leader.changed()
    await eventually(lambda: broker.fetchers.max_lag == 3)
    leader.spoil = None
    leader.changed()
    await eventually(lambda: broker.fetchers.max_lag == 0)
    assert broker.fetchers.min_fetch_rate > 0
