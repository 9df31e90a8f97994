"""What a fetcher does to logs: slices, cuts in a thread, fsyncs, nothing for the leader before."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.offload import ThreadOffload
from barnabas.broker.replication import fetcher
from barnabas.broker.replication.follower import Following
from barnabas.broker.replication.partition import Partition
from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.storage.log import Log
from tests.unit.broker.replication.following import (
    KEY,
    ME,
    FollowingBroker,
    HeldOffload,
    Leader,
    add,
    equal,
    led,
)
from tests.unit.broker.replication.test_follower import lead, write
from tests.waiting import eventually


async def test_a_log_that_is_damaged_where_it_is_cut_holds_up_no_other(
    leader: Leader, broker: FollowingBroker
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


def following(broker: FollowingBroker, index: int) -> Following:
    return next(each for each in broker.fetchers if each.partition.index == index)


async def test_logs_that_diverge_are_cut_until_they_agree(
    leader: Leader, broker: FollowingBroker
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


async def test_a_follower_that_is_too_far_behind_begins_at_the_leaders_start(
    leader: Leader, broker: FollowingBroker
) -> None:
    log, partition = led(leader), broker.partition()
    add(leader, log, *(b"x" * 100 for _ in range(50)))
    log.advance_high_watermark(50)
    log.delete_records_before(30)
    write(partition.log, b"x" * 100, epoch=0)
    broker.follow(partition)
    await eventually(equal(partition, log))
    assert partition.log.log_start_offset == 30


async def test_whoever_leads_next_waits_for_a_cut_in_a_thread(leader: Leader) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
    log, partition = led(leader), broker.partition()
    add(leader, log, b"x", epoch=2)
    leader.epochs[KEY] = 2
    write(partition.log, b"p", b"q", epoch=1)
    broker.follow(partition, epoch=2)
    await eventually(lambda: offload.waiting)
    work = broker.fetchers.unfollow(partition)
    assert work is not None
    while not work.done():
        offload.let_go()
        await asyncio.sleep(0)
    assert not partition.log.truncating
    assert partition.log.log_end_offset == 0
    await broker.stop()


async def test_a_stopping_broker_completes_what_it_cuts(leader: Leader) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
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
        offload.let_go()
        await asyncio.sleep(0)
    assert not partition.log.truncating
    assert leader.lines == 0


async def test_others_are_fetched_while_one_log_is_cut(leader: Leader) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
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
        offload.let_go()
        await asyncio.sleep(0)
    await broker.stop()


async def test_a_large_answer_lets_others_have_their_turn(
    leader: Leader, broker: FollowingBroker, monkeypatch: pytest.MonkeyPatch
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


async def test_a_leader_that_changes_within_an_answer_has_the_rest_dropped(
    leader: Leader, broker: FollowingBroker, monkeypatch: pytest.MonkeyPatch
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


async def test_where_flush_comes_first_only_what_is_flushed_is_told_to_the_leader(
    leader: Leader,
) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
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
    offload.let_go()
    seen = len(leader.requests)
    await eventually(lambda: len(leader.requests) > seen)
    assert leader.requests[seen].topics[0].partitions[0].fetch_offset == 2
    add(leader, log, b"c")
    await eventually(lambda: partition.log.log_end_offset == 3)
    offload.let_go()
    await broker.stop()


async def test_what_was_not_flushed_before_following_is_flushed_first(leader: Leader) -> None:
    broker = FollowingBroker(leader)
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
    """The topic's configuration changes."""
    partition.log.configure(TopicConfig(flush_messages=1))
    partition.config_changed()


def beside_another(leader: Leader, broker: FollowingBroker) -> tuple[Log, Partition]:
    """A log and its follower; another partition is followed too, so that no session is empty."""
    led(leader, 1)
    broker.follow(broker.partition(1))
    log, partition = led(leader), broker.partition()
    broker.follow(partition)
    return log, partition


async def a_session_leaves_it_out(leader: Leader) -> None:
    """The leader loses the session, and the next one begins with the other partition alone."""

    def new_sessions() -> list[FetchRequest]:
        return [request for request in leader.requests if request.session_epoch == 0]

    before = len(new_sessions())
    leader.drop_session()
    leader.changed()
    await eventually(lambda: len(new_sessions()) > before)
    assert [each.partition for each in new_sessions()[-1].topics[0].partitions] == [1]


async def test_what_flushes_first_only_now_is_not_left_out_of_the_next_session_for_good(
    leader: Leader,
) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
    log, partition = beside_another(leader, broker)
    add(leader, log, b"a", b"b")
    await eventually(equal(partition, log))
    flush_first(partition)
    await a_session_leaves_it_out(leader)
    offload.let_go()
    add(leader, log, b"c")
    await eventually(lambda: partition.log.log_end_offset == 3)
    offload.let_go()
    await broker.stop()


async def test_a_log_in_a_new_directory_is_not_left_out_of_the_next_session_for_good(
    leader: Leader,
) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(leader, offload)
    broker.topic_config = TopicConfig(flush_messages=1)
    log, partition = beside_another(leader, broker)
    add(leader, log, b"a")
    await eventually(equal(partition, log))
    await eventually(lambda: offload.waiting)
    offload.let_go()
    await eventually(lambda: told(leader) == 1)
    moved = broker.partition(path="/elsewhere").log
    write(moved, b"a", epoch=0)
    partition.replace_log(moved)
    await a_session_leaves_it_out(leader)
    offload.let_go()
    add(leader, log, b"b")
    await eventually(lambda: partition.log.log_end_offset == 2)
    offload.let_go()
    await broker.stop()


async def test_what_flushes_first_only_now_is_fetched_again_once_the_quota_allows_it(
    leader: Leader,
) -> None:
    offload = HeldOffload()
    broker = FollowingBroker(
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
    await eventually(lambda: throttled.lacks_only_a_flush and offload.waiting)
    offload.let_go()
    add(leader, log, b"y")
    await eventually(lambda: partition.log.log_end_offset == 21)
    offload.let_go()
    await broker.stop()


async def test_an_answer_of_an_epoch_that_is_over_is_dropped(
    leader: Leader, broker: FollowingBroker
) -> None:
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
async def patient(leader: Leader) -> AsyncIterator[FollowingBroker]:
    """Follows a quiet partition too: an answer that brings nothing comes only after a minute."""
    broker = FollowingBroker(leader, ThreadOffload(), replica_fetch_wait_max_ms="60000")
    led(leader, 1)
    broker.follow(broker.partition(1))
    await eventually(lambda: leader.in_flight)
    yield broker
    await broker.stop()


async def test_what_is_flushed_is_told_at_once_though_all_others_are_quiet(
    leader: Leader, patient: FollowingBroker
) -> None:
    patient.topic_config = TopicConfig(flush_messages=1)
    log, partition = led(leader), patient.partition()
    patient.follow(partition)
    leader.changed()
    for value in (b"a", b"b", b"c"):
        add(leader, log, value)
        await eventually(lambda: told(leader) == log.log_end_offset)
    assert partition.log.flushed_offset == 3


async def test_what_was_cut_is_fetched_at_once_though_all_others_are_quiet(
    leader: Leader, patient: FollowingBroker
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


async def test_a_pause_ends_in_time_though_all_others_are_quiet(
    leader: Leader, patient: FollowingBroker
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
    """What the leader was last told of partition 0."""
    asked = [each for request in leader.requests for topic in request.topics
             for each in topic.partitions if each.partition == 0]  # fmt: skip
    return asked[-1].fetch_offset if asked else -1
