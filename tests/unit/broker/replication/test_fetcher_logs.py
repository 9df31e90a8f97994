"""The fetcher's changes of logs: slices, truncations in a thread, fsyncs before fetches."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.loop.offload import ThreadOffload
from barnabas.broker.replication.follower import fetcher
from barnabas.broker.replication.follower.follower_state import FollowerState
from barnabas.broker.replication.partition import Partition
from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.storage.log.log import Log
from tests.support.waiting import eventually
from tests.unit.broker.replication.fake_leader import lead, write
from tests.unit.broker.replication.follower_broker import (
    KEY,
    ME,
    FollowerBroker,
    Leader,
    ManualOffload,
    add,
    equal,
    led,
)


async def test_log_damaged_at_its_truncation_does_not_block_others(
    leader: Leader, broker: FollowerBroker
) -> None:
    damaged, good = led(leader, 0), led(leader, 1)
    partitions = [broker.partition(index) for index in range(2)]
    for log in (damaged, partitions[0].log):
        write(log, b"o" * 9000, epoch=0)
    write(partitions[0].log, b"p" * 9000, epoch=1)
    lead(damaged, 2)
    leader.epochs[KEY] = 2
    file = partitions[0].log.segments.active.active_file
    assert file is not None
    file.truncate(100)
    broker.follow(partitions[0], epoch=2)
    await eventually(lambda: following(broker, 0).failures > 1)
    broker.follow(partitions[1])
    add(leader, good, b"a")
    await eventually(equal(partitions[1], good))


def following(broker: FollowerBroker, index: int) -> FollowerState:
    return next(each for each in broker.fetchers if each.partition.index == index)


async def test_diverging_log_is_truncated_until_it_agrees(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    for epoch in (0, 2, 4):
        add(leader, log, b"x", b"y", epoch=epoch)
    for epoch in (0, 1, 3, 3):
        write(partition.log, b"x", b"y", epoch=epoch)
    leader.epochs[KEY] = 5
    lead(log, 5)
    broker.follow(partition, epoch=5)
    await eventually(equal(partition, log))


async def test_follower_behind_the_leaders_log_start_restarts_there(
    leader: Leader, broker: FollowerBroker
) -> None:
    log, partition = led(leader), broker.partition()
    add(leader, log, *(b"x" * 100 for _ in range(50)))
    log.advance_high_watermark(50)
    log.delete_records_before(30)
    write(partition.log, b"x" * 100, epoch=0)
    broker.follow(partition)
    await eventually(equal(partition, log))
    assert partition.log.log_start_offset == 30


async def test_unfollow_waits_for_a_truncation_in_a_thread(leader: Leader) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    log, partition = led(leader), broker.partition()
    add(leader, log, b"x", epoch=2)
    leader.epochs[KEY] = 2
    write(partition.log, b"p", b"q", epoch=1)
    broker.follow(partition, epoch=2)
    await eventually(lambda: offload.waiting)
    work = broker.fetchers.unfollow(partition)
    assert work is not None
    while not work.done():
        offload.run_waiting()
        await asyncio.sleep(0)
    assert not partition.log.truncating
    assert partition.log.log_end_offset == 0
    await broker.stop()


async def test_stopping_broker_completes_truncations(leader: Leader) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    log, partition = led(leader), broker.partition()
    add(leader, log, b"x", epoch=2)
    leader.epochs[KEY] = 2
    write(partition.log, b"p", b"q", epoch=1)
    broker.follow(partition, epoch=2)
    await eventually(lambda: offload.waiting)
    stopping = asyncio.create_task(broker.stop())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not stopping.done()
    while not stopping.done():
        offload.run_waiting()
        await asyncio.sleep(0)
    assert not partition.log.truncating
    assert leader.connections == 0


async def test_other_partitions_are_fetched_during_a_truncation(leader: Leader) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    cut, other = led(leader, 0), led(leader, 1)
    partitions = [broker.partition(index) for index in range(2)]
    write(partitions[0].log, b"p", b"q", epoch=1)
    add(leader, cut, b"x", epoch=2)
    leader.epochs[KEY] = 2
    broker.follow(partitions[0], epoch=2)
    broker.follow(partitions[1])
    await eventually(lambda: offload.waiting)
    add(leader, other, b"meanwhile")
    await eventually(equal(partitions[1], other))
    while not equal(partitions[0], cut)():
        offload.run_waiting()
        await asyncio.sleep(0)
    await broker.stop()


async def test_large_answer_yields_to_the_event_loop(
    leader: Leader, broker: FollowerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "SLICE_S", 0.0)
    log, partition = led(leader), broker.partition()
    add(leader, log, *(b"x" for _ in range(1000)))
    ends = set()

    async def watch() -> None:
        while partition.log.log_end_offset < 1000:
            ends.add(partition.log.log_end_offset)
            await asyncio.sleep(0)

    broker.follow(partition)
    await watch()
    assert len(ends) >= 1000 // fetcher.SLICE_BATCHES


async def test_leader_change_within_an_answer_drops_the_rest_of_it(
    leader: Leader, broker: FollowerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "SLICE_S", 0.0)
    log, partition = led(leader), broker.partition()
    add(leader, log, *(b"x" for _ in range(1000)))
    other = led(leader, 1)
    broker.follow(partition)
    broker.follow(broker.partition(1))
    while not partition.log.log_end_offset:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert broker.fetchers.unfollow(partition) is None
    end = partition.log.log_end_offset
    assert end < 1000
    seen = len(leader.requests)
    add(leader, other, b"meanwhile")
    await eventually(lambda: len(leader.requests) > seen + 1)
    assert partition.log.log_end_offset == end


async def test_follower_that_flushes_first_acknowledges_only_flushed_records(
    leader: Leader,
) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    broker.topic_config = TopicConfig(flush_messages=1)
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    add(leader, log, b"a", b"b")
    await eventually(lambda: partition.log.log_end_offset == 2)
    for _ in range(50):
        await asyncio.sleep(0)
    told = {each.fetch_offset for request in leader.requests for topic in request.topics
            for each in topic.partitions}  # fmt: skip
    assert told == {0}
    offload.run_waiting()
    seen = len(leader.requests)
    await eventually(lambda: len(leader.requests) > seen)
    assert leader.requests[seen].topics[0].partitions[0].fetch_offset == 2
    add(leader, log, b"c")
    await eventually(lambda: partition.log.log_end_offset == 3)
    offload.run_waiting()
    await broker.stop()


async def test_unflushed_log_is_flushed_before_the_first_fetch(leader: Leader) -> None:
    broker = FollowerBroker(leader)
    broker.topic_config = TopicConfig(flush_messages=1)
    log, partition = led(leader), broker.partition()
    add(leader, log, b"a", b"b")
    write(partition.log, b"a", epoch=0)
    assert partition.log.flushed_offset == 0
    broker.follow(partition)
    await eventually(equal(partition, log))
    assert partition.log.flushed_offset >= 1
    await broker.stop()


def flush_first(partition: Partition) -> None:
    """Change the topic's configuration to flush first."""
    partition.log.configure(TopicConfig(flush_messages=1))
    partition.config_changed()


def beside_another(leader: Leader, broker: FollowerBroker) -> tuple[Log, Partition]:
    """Return a log and its follower; another followed partition keeps the session alive."""
    led(leader, 1)
    broker.follow(broker.partition(1))
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    return log, partition


async def a_session_leaves_it_out(leader: Leader) -> None:
    """Drop the leader's session; the next session begins with the other partition only."""

    def new_sessions() -> list[FetchRequest]:
        return [request for request in leader.requests if request.session_epoch == 0]

    before = len(new_sessions())
    leader.drop_session()
    leader.changed()
    await eventually(lambda: len(new_sessions()) > before)
    assert [each.partition for each in new_sessions()[-1].topics[0].partitions] == [1]


async def test_partition_that_starts_to_flush_first_rejoins_the_next_session(
    leader: Leader,
) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    log, partition = beside_another(leader, broker)
    add(leader, log, b"a", b"b")
    await eventually(equal(partition, log))
    flush_first(partition)
    await a_session_leaves_it_out(leader)
    offload.run_waiting()
    add(leader, log, b"c")
    await eventually(lambda: partition.log.log_end_offset == 3)
    offload.run_waiting()
    await broker.stop()


async def test_partition_moved_to_a_new_directory_rejoins_the_next_session(
    leader: Leader,
) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(leader, offload)
    broker.topic_config = TopicConfig(flush_messages=1)
    log, partition = beside_another(leader, broker)
    add(leader, log, b"a")
    await eventually(equal(partition, log))
    await eventually(lambda: offload.waiting)
    offload.run_waiting()
    await eventually(lambda: told(leader) == 1)
    moved = broker.partition(path="/elsewhere").log
    write(moved, b"a", epoch=0)
    partition.replace_log(moved)
    await a_session_leaves_it_out(leader)
    offload.run_waiting()
    add(leader, log, b"b")
    await eventually(lambda: partition.log.log_end_offset == 2)
    offload.run_waiting()
    await broker.stop()


async def test_partition_that_starts_to_flush_first_is_fetched_once_the_quota_allows_it(
    leader: Leader,
) -> None:
    offload = ManualOffload()
    broker = FollowerBroker(
        leader,
        offload,
        follower_replication_throttled_rate="1000",
        replication_quota_window_num="2",
    )
    broker.topic_config = TopicConfig(follower_replication_throttled_replicas=(f"0:{ME}",))
    log, partition = beside_another(leader, broker)
    add(leader, log, *(b"x" * 400 for _ in range(20)))
    await eventually(equal(partition, log))
    throttled = following(broker, 0)

    def waits() -> bool:
        throttled.lag = 1
        return not throttled.ready

    await eventually(waits)
    flush_first(partition)
    broker.clock.ahead += 10.0
    await eventually(lambda: throttled.awaits_flush_only and offload.waiting)
    offload.run_waiting()
    add(leader, log, b"y")
    await eventually(lambda: partition.log.log_end_offset == 21)
    offload.run_waiting()
    await broker.stop()


async def test_answer_of_an_older_epoch_is_dropped(leader: Leader, broker: FollowerBroker) -> None:
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    await eventually(lambda: leader.tries > 1)
    leader.held = asyncio.Event()
    add(leader, log, b"of epoch 0")
    tries = leader.tries
    other = led(leader, 1)
    broker.follow(broker.partition(1))
    broker.follow(partition, epoch=1)
    leader.held.set()
    add(leader, other, b"meanwhile")
    await eventually(lambda: leader.tries > tries + 2)
    assert partition.log.log_end_offset == 0
    leader.epochs[KEY] = 1
    lead(log, 1)
    await eventually(equal(partition, log))


@pytest.fixture
async def patient(leader: Leader) -> AsyncIterator[FollowerBroker]:
    """A broker that also follows a quiet partition: an answer without news takes a minute."""
    broker = FollowerBroker(leader, ThreadOffload(), replica_fetch_wait_max_ms="60000")
    led(leader, 1)
    broker.follow(broker.partition(1))
    await eventually(lambda: leader.in_flight)
    yield broker
    await broker.stop()


async def test_flush_is_acknowledged_at_once_while_other_partitions_are_quiet(
    leader: Leader, patient: FollowerBroker
) -> None:
    patient.topic_config = TopicConfig(flush_messages=1)
    log, partition = led(leader), patient.partition()
    patient.follow(partition)
    leader.changed()
    for value in (b"a", b"b", b"c"):
        add(leader, log, value)
        await eventually(lambda: told(leader) == log.log_end_offset)
    assert partition.log.flushed_offset == 3


async def test_truncated_partition_is_fetched_at_once_while_others_are_quiet(
    leader: Leader, patient: FollowerBroker
) -> None:
    log, partition = led(leader), patient.partition()
    for epoch in (0, 2):
        add(leader, log, b"x", epoch=epoch)
    for epoch in (0, 1):
        write(partition.log, b"x", b"y", epoch=epoch)
    lead(log, 3)
    leader.epochs[KEY] = 3
    patient.follow(partition, epoch=3)
    leader.changed()
    await eventually(equal(partition, log))


async def test_backoff_ends_in_time_while_other_partitions_are_quiet(
    leader: Leader, patient: FollowerBroker
) -> None:
    log, partition = led(leader), patient.partition()
    leader.errors[KEY] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    patient.follow(partition)
    leader.changed()
    await eventually(lambda: following(patient, 0).failures > 2)
    del leader.errors[KEY]
    add(leader, log, b"a")
    await eventually(equal(partition, log))


def told(leader: Leader) -> int:
    """Return the last fetch offset that the leader received for partition 0."""
    asked = [each for request in leader.requests for topic in request.topics
             for each in topic.partitions if each.partition == 0]  # fmt: skip
    return asked[-1].fetch_offset if asked else -1
