"""Fetch by followers: the records they get, and the acknowledgements of their offsets."""

import asyncio

import pytest

from barnabas.broker.cluster.cache import BrokerNode
from barnabas.broker.handlers import fetch
from barnabas.broker.replication.leader.fetch_session import MANY
from barnabas.broker.replication.leader.record_deletion import delete_records
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.steps import taken
from tests.unit.broker.handlers.leading import BATCH, leading, sizes


async def test_follower_fetch_commits_the_records_before_its_offset() -> None:
    leader = await leading()
    leader.append()
    answer = leader.session(leader.ask())
    assert sizes(answer) == {0: 1}
    assert leader.partition().high_watermark == 0
    answer = leader.session(leader.ask({0: 1}))
    assert leader.partition().high_watermark == 1
    assert answer[0].high_watermark == 1
    out = leader.replicas.metrics.replication.bytes_out.cell().value
    assert out == len(BATCH)


async def test_fetch_looks_only_at_changed_partitions() -> None:
    leader = await leading(50)
    assert len(leader.session(leader.ask())) == 50
    assert leader.lookup.looks == 50
    assert leader.session(leader.ask({})) == {}
    assert leader.lookup.looks == 0
    waiting = leader.ask({}, max_wait_ms=20_000)
    leader.append(7)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert sizes(answer) == {7: 1}
    assert leader.lookup.looks == 1
    answer = leader.session(leader.ask({7: 1}))
    assert answer[7].high_watermark == 1
    assert leader.lookup.looks == 1


async def test_unacknowledged_records_are_sent_again() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    leader.append(1)
    assert sizes(leader.session(leader.ask({}))) == {1: 1}
    assert sizes(leader.session(leader.ask({}))) == {1: 1}


async def test_delayed_follower_fetch_returns_new_high_watermark_without_records() -> None:
    leader = await leading()
    await leader.lead(0, isr=(0, 1, 2), replicas=(0, 1, 2))
    leader.append()
    leader.session(leader.ask())
    waiting = leader.ask({0: 1}, max_wait_ms=20_000)
    assert leader.partition().high_watermark == 0
    leader.replicas.fetched(2, 1, topic="t0")
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].high_watermark == 1
    assert not answer[0].records


async def test_delayed_follower_fetch_returns_new_log_start() -> None:
    leader = await leading()
    leader.append()
    leader.session(leader.ask())
    leader.session(leader.ask({0: 1}))
    waiting = leader.ask({}, max_wait_ms=20_000)
    delete_records(leader.partition(), 1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].log_start_offset == 1


async def test_diverging_log_acknowledges_nothing() -> None:
    """KAFKA-13141: the high watermark advanced over what the follower was about to truncate."""
    leader = await leading()
    leader.append()
    leader.append()
    await leader.lead(0, epoch=5)
    leader.append()
    leader.session(leader.ask({0: 0}, leader_epoch=5))
    answer = leader.session(leader.ask({0: 3}, leader_epoch=5, epochs={0: 3}))
    assert (answer[0].diverging_epoch.epoch, answer[0].diverging_epoch.end_offset) == (0, 2)
    assert leader.partition().high_watermark == 0
    assert leader.partition().isr_state.followers[1].log_end == 0


async def test_new_leader_epoch_ends_delayed_follower_fetch() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(1, epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert {topic: each.error_code for topic, each in answer.items()} == {
        1: ErrorCode.FENCED_LEADER_EPOCH
    }


async def test_resigned_leader_ends_delayed_follower_fetch() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(0, leader=2, isr=(2,), replicas=(0, 1, 2), epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    await leader.replicas.fetchers.stop()


@pytest.mark.parametrize(("replica", "broker_epoch"), [(3, 1), (1, 0)])
async def test_broker_without_replica_or_with_old_epoch_gets_no_records(
    replica: int, broker_epoch: int
) -> None:
    leader = await leading()
    leader.append()
    leader.replicas.fetched(1, 0, topic="t0", broker_epoch=1)
    answer = leader.session(leader.ask({0: 1}, replica=replica, broker_epoch=broker_epoch))
    assert answer[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


@pytest.mark.parametrize("claim", [{"inter_broker": False}, {"broker_epoch": -1}])
async def test_replica_fetch_needs_inter_broker_listener_and_broker_epoch(
    claim: dict[str, int],
) -> None:
    leader = await leading()
    leader.append()
    (refused,) = leader.ask({0: 1}, **claim).responses[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


async def test_session_belongs_to_one_follower() -> None:
    leader = await leading()
    leader.session(leader.ask())
    with pytest.raises(KafkaError) as caught:
        leader.ask({0: 1}, replica=2)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_new_broker_epoch_in_session_reaches_all_partitions() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, broker_epoch=9))
    epochs = [leader.partition(topic).isr_state.followers[1].broker_epoch for topic in range(3)]
    assert epochs == [9, 9, 9]


async def test_silent_follower_that_returns_in_time_stays_in_isr() -> None:
    leader = await leading()
    leader.replicas.cache._brokers = {1: BrokerNode(1, None, {})}
    leader.session(leader.ask())
    partition = leader.partition()
    partition.isr_state.proposed = (0,)
    leader.session_epoch = 0
    leader.session(leader.ask())
    partition.isr_changed((0,), partition.partition_epoch + 1)
    assert partition.isr_state.proposed is None
    leader.session(leader.ask({}))
    assert partition.isr_state.proposed == (0, 1)


async def test_quiet_follower_that_leaves_isr_during_its_fetch_joins_with_the_next() -> None:
    leader = await leading(2)
    leader.replicas.cache._brokers = {1: BrokerNode(1, None, {})}
    leader.session(leader.ask())
    # A new registration over the same connection: every position is taken from this request.
    waiting = leader.ask({}, broker_epoch=2, max_wait_ms=20_000)
    # The controller has seen the end of the old registration; the leader epoch stays.
    await leader.lead(0, isr=(0,))
    await asyncio.sleep(0)
    assert not waiting.done()
    leader.append(1)
    leader.session(await asyncio.wait_for(waiting, 5))
    state = leader.partition().isr_state
    assert state.proposed is None
    leader.session(leader.ask({}, broker_epoch=2))
    assert state.proposed == (0, 1)
    assert state.followers[1].broker_epoch == 2


async def test_quiet_follower_that_a_proposal_removes_during_its_fetch_joins_again() -> None:
    leader = await leading()
    leader.replicas.cache._brokers = {1: BrokerNode(1, None, {})}
    leader.session(leader.ask())
    waiting = leader.ask({}, broker_epoch=2, max_wait_ms=20_000)
    partition = leader.partition()
    partition.isr_state.proposed = (0,)
    partition.isr_changed((0,), partition.partition_epoch + 1)
    leader.session(await asyncio.wait_for(waiting, 5))
    leader.session(leader.ask({}, broker_epoch=2))
    assert partition.isr_state.proposed == (0, 1)


async def test_closed_session_watches_no_partitions() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, forget=(1,)))
    assert [len(leader.partition(topic).follower_watches) for topic in range(3)] == [1, 0, 1]
    leader.session_epoch = 0
    leader.session(leader.ask())
    assert [len(leader.partition(topic).follower_watches) for topic in range(3)] == [1, 1, 1]
    leader.session_epoch = -1
    leader.ask()
    assert [len(leader.partition(topic).follower_watches) for topic in range(3)] == [0, 0, 0]


async def test_forgotten_partition_is_not_caught_up_by_its_session() -> None:
    leader = await leading(2)
    clock = leader.replicas.clock
    leader.session(leader.ask())
    leader.session(leader.ask({}, forget=(1,)))
    forgotten_at = clock.seconds
    clock.seconds += 60
    leader.session(leader.ask({}))
    followers = [leader.partition(topic).isr_state.followers[1] for topic in range(2)]
    assert [each.caught_up_at for each in followers] == [clock.seconds, forgotten_at]


async def test_cancelled_fetch_leaves_no_watches() -> None:
    leader = await leading(2)
    waiting = leader.ask(max_wait_ms=20_000)
    waiting.cancel()
    await asyncio.sleep(0)
    assert [len(leader.partition(topic).follower_watches) for topic in range(2)] == [0, 0]


async def test_partitions_beyond_max_bytes_come_first_next_time() -> None:
    leader = await leading(2)
    for topic in (0, 1):
        leader.append(topic)
    size = len(BATCH)
    assert sizes(leader.session(leader.ask(max_bytes=size))) == {0: 1, 1: 0}
    assert sizes(leader.session(leader.ask({0: 1}, max_bytes=size)))[1] == 1


async def test_throttled_leader_delays_follower_out_of_sync() -> None:
    leader = await leading(leader_replication_throttled_replicas="*")
    quota = leader.replicas.quotas.leader
    quota._limit = lambda: 10
    leader.append()
    assert sizes(leader.session(leader.ask())) == {0: 1}
    assert quota.rate(leader.replicas.clock.seconds) == len(BATCH)
    assert sizes(leader.session(leader.ask({}))) == {0: 1}, "it is in sync"
    await leader.lead(0, isr=(0,))
    assert sizes(leader.session(leader.ask({}))) == {0: 0}


async def test_fetch_of_a_registration_that_is_not_present_changes_nothing() -> None:
    leader = await leading()
    leader.append()
    leader.session(leader.ask())
    leader.registered = lambda _id, _epoch: False
    before = leader.partition().isr_state.followers[1].log_end
    refused = leader.ask({0: 1}, broker_epoch=7)
    assert (refused.error_code, refused.responses) == (ErrorCode.STALE_BROKER_EPOCH, [])
    follower = leader.partition().isr_state.followers[1]
    assert (follower.log_end, follower.broker_epoch) == (before, 1)
    assert leader.partition().high_watermark == 0
    assert len(leader.sessions) == 1


async def test_fetch_of_an_unknown_registration_waits_for_the_store() -> None:
    leader = await leading()
    leader.append()
    asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    leader.registered = lambda _id, _epoch: asked
    waiting = leader.ask({0: 1}, broker_epoch=7)
    await asyncio.sleep(0)
    assert leader.partition().high_watermark == 0
    asked.set_result(True)
    leader.session(await waiting)
    assert leader.partition().high_watermark == 1


async def test_many_partitions_of_a_follower_are_read_in_steps() -> None:
    leader = await leading(MANY + 1)
    answer, steps = taken(leader.begin())
    assert len(leader.session(answer)) == MANY + 1
    assert steps >= 2 * MANY
    # Nothing has changed: the next request of the session reads nothing.
    assert leader.session(leader.ask({})) == {}
    answer, steps = taken(leader.begin(dict.fromkeys(leader.topics, 0)))
    assert steps >= MANY


async def test_append_between_two_steps_of_a_follower_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "MANY", 1)
    leader = await leading(2)
    leader.session(leader.ask())
    steps = leader.begin({0: 0, 1: 0}, max_wait_ms=60_000)
    next(steps)
    leader.append(0)
    waiting, _ = taken(steps)
    answer, _ = taken(await asyncio.wait_for(waiting, 10))
    assert sizes(leader.session(answer)) == {0: 1}
