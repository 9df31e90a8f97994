"""Fetch for followers: what they are sent, and what they tell the leader by asking for it."""

import asyncio

import pytest

from barnabas.broker.metadata.cache import BrokerNode
from barnabas.broker.replication.record_deletion import delete_records
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.handlers.leading import BATCH, leading, sizes


async def test_a_follower_reads_what_is_not_committed_and_commits_it_by_asking_for_more() -> None:
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


async def test_only_partitions_that_changed_are_looked_at_however_many_there_are() -> None:
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


async def test_records_that_were_not_asked_for_again_are_sent_again() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    leader.append(1)
    assert sizes(leader.session(leader.ask({}))) == {1: 1}
    assert sizes(leader.session(leader.ask({}))) == {1: 1}


async def test_a_parked_follower_learns_the_high_watermark_though_no_records_come() -> None:
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


async def test_deleted_records_are_told_to_a_follower_that_is_parked() -> None:
    leader = await leading()
    leader.append()
    leader.session(leader.ask())
    leader.session(leader.ask({0: 1}))
    waiting = leader.ask({}, max_wait_ms=20_000)
    delete_records(leader.partition(), 1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].log_start_offset == 1


async def test_a_log_that_diverges_acknowledges_nothing() -> None:
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
    assert leader.partition().in_sync.followers[1].log_end == 0


async def test_another_leader_epoch_is_told_to_a_parked_follower_at_once() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(1, epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert {topic: each.error_code for topic, each in answer.items()} == {
        1: ErrorCode.FENCED_LEADER_EPOCH
    }


async def test_a_leader_that_is_none_any_more_says_so_to_a_parked_follower() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(0, leader=2, isr=(2,), replicas=(0, 1, 2), epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    await leader.replicas.fetchers.stop()


@pytest.mark.parametrize(("replica", "broker_epoch"), [(3, 1), (1, 0)])
async def test_who_has_no_replica_or_is_of_the_past_gets_nothing(
    replica: int, broker_epoch: int
) -> None:
    leader = await leading()
    leader.append()
    leader.replicas.fetched(1, 0, topic="t0", broker_epoch=1)
    answer = leader.session(leader.ask({0: 1}, replica=replica, broker_epoch=broker_epoch))
    assert answer[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


@pytest.mark.parametrize("claim", [{"inter_broker": False}, {"broker_epoch": -1}])
async def test_who_is_where_clients_are_or_does_not_say_of_which_run_is_no_follower(
    claim: dict[str, int],
) -> None:
    leader = await leading()
    leader.append()
    (refused,) = leader.ask({0: 1}, **claim).responses[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


async def test_a_session_is_its_owners_alone() -> None:
    leader = await leading()
    leader.session(leader.ask())
    with pytest.raises(KafkaError) as caught:
        leader.ask({0: 1}, replica=2)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_new_incarnation_in_an_old_session_is_known_everywhere() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, broker_epoch=9))
    epochs = [leader.partition(topic).in_sync.followers[1].broker_epoch for topic in range(3)]
    assert epochs == [9, 9, 9]


async def test_a_quiet_follower_that_is_back_before_it_was_left_out_is_heard_again() -> None:
    leader = await leading()
    leader.replicas.cache._brokers = {1: BrokerNode(1, None, {})}
    leader.session(leader.ask())
    partition = leader.partition()
    partition.in_sync.proposed = (0,)
    leader.session_epoch = 0
    leader.session(leader.ask())
    partition.in_sync_set_changed((0,), partition.partition_epoch + 1)
    assert partition.in_sync.proposed is None
    leader.session(leader.ask({}))
    assert partition.in_sync.proposed == (0, 1)


async def test_partitions_of_a_session_that_is_over_are_watched_no_more() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, forget=(1,)))
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [1, 0, 1]
    leader.session_epoch = 0
    leader.session(leader.ask())
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [1, 1, 1]
    leader.session_epoch = -1
    leader.ask()
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [0, 0, 0]


async def test_a_partition_that_left_its_session_is_not_caught_up_because_the_session_is() -> None:
    leader = await leading(2)
    clock = leader.replicas.clock
    leader.session(leader.ask())
    leader.session(leader.ask({}, forget=(1,)))
    forgotten_at = clock.seconds
    clock.seconds += 60
    leader.session(leader.ask({}))
    followers = [leader.partition(topic).in_sync.followers[1] for topic in range(2)]
    assert [each.caught_up_at for each in followers] == [clock.seconds, forgotten_at]


async def test_a_request_whose_connection_is_gone_leaves_nothing_behind() -> None:
    leader = await leading(2)
    waiting = leader.ask(max_wait_ms=20_000)
    waiting.cancel()
    await asyncio.sleep(0)
    assert [len(leader.partition(topic).tails) for topic in range(2)] == [0, 0]


async def test_max_bytes_serves_the_others_first_the_next_time() -> None:
    leader = await leading(2)
    for topic in (0, 1):
        leader.append(topic)
    size = len(BATCH)
    assert sizes(leader.session(leader.ask(max_bytes=size))) == {0: 1, 1: 0}
    assert sizes(leader.session(leader.ask({0: 1}, max_bytes=size)))[1] == 1


async def test_a_follower_out_of_sync_waits_where_the_leader_is_throttled() -> None:
    leader = await leading(leader_replication_throttled_replicas="*")
    quota = leader.replicas.quotas.leader
    quota._limit = lambda: 10
    leader.append()
    assert sizes(leader.session(leader.ask())) == {0: 1}
    assert quota.rate(leader.replicas.clock.seconds) == len(BATCH)
    assert sizes(leader.session(leader.ask({}))) == {0: 1}, "it is in sync"
    await leader.lead(0, isr=(0,))
    assert sizes(leader.session(leader.ask({}))) == {0: 0}
