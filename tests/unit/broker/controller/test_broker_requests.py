"""The requests of brokers to the controller: ISR changes and controlled shutdown."""

import pytest

from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.controller.harness import until
from tests.unit.broker.controller.trio import Trio


async def test_leader_shrinks_and_expands_its_isr(trio: Trio) -> None:
    answer = await trio.propose(2, 1)
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 2, 0)
    assert (answer.isr, answer.partition_epoch) == ([2, 1], 1)
    assert trio.state() == LeaderAndIsr(2, 0, (2, 1), 1)
    for broker in trio.brokers.values():
        await until(lambda cache=broker.cache: cache.partition("t", 0).isr == (2, 1))
    grown = await trio.propose(2, 1, 3, partition_epoch=1)
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, [2, 1, 3], 2)


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader": 3}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 3)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2, 9)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2, 3), "epochs": {3: 1}}, ErrorCode.INELIGIBLE_REPLICA),
        ({"topic_id": bytes(16)[:15] + b"x"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_invalid_proposal_is_refused(trio: Trio, proposal: dict, code: ErrorCode) -> None:  # type: ignore[type-arg]
    isr = proposal.pop("isr", (2, 1))
    assert (await trio.propose(*isr, **proposal)).error_code == code
    assert trio.state() == LeaderAndIsr(2, 0, (2, 3, 1), 1)


async def test_outdated_proposal_is_refused_and_the_leader_gets_the_state_again(
    trio: Trio,
) -> None:
    await trio.propose(2, 1)
    trio.brokers[2].replicas.states.clear()
    assert (await trio.propose(2)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    await until(lambda: ("t", 0) in trio.brokers[2].replicas.states)
    assert trio.brokers[2].replicas.states["t", 0].partition_epoch == 1


async def test_proposal_may_be_repeated_after_a_lost_answer(trio: Trio) -> None:
    await trio.propose(2, 1)
    again = await trio.propose(2, 1)
    assert (again.error_code, again.partition_epoch) == (0, 1)


async def test_dead_or_restarted_replica_is_not_eligible(trio: Trio) -> None:
    old = trio.brokers[3].info.epoch
    await trio.kill(3)
    await until(lambda: trio.state().isr == (2, 1))
    version = trio.state().partition_epoch
    gone = await trio.propose(2, 1, 3, partition_epoch=version, epochs={3: old})
    assert gone.error_code == ErrorCode.INELIGIBLE_REPLICA
    await trio.start(3, restart=Restart.KILLED)
    stale = await trio.propose(2, 1, 3, partition_epoch=version, epochs={3: old})
    assert stale.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert (await trio.propose(2, 1, 3, partition_epoch=version)).error_code == 0


@pytest.mark.parametrize("run", [-1, 1])
async def test_earlier_run_or_unknown_broker_is_refused(trio: Trio, run: int) -> None:
    with pytest.raises(KafkaError) as caught:
        await trio.propose(2, 1, broker_epoch=trio.brokers[2].info.epoch + run)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as caught:
        await trio.brokers[1].controller.controlled_shutdown(9, 5)
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_broker_that_is_not_controller_refuses(trio: Trio) -> None:
    request = AlterPartitionRequest(broker_id=2, broker_epoch=99, topics=[])
    with pytest.raises(KafkaError) as caught:
        await trio.brokers[2].controller.alter_partition(request)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


async def test_controlled_shutdown_moves_all_leaderships_that_can_move(trio: Trio) -> None:
    await trio.create("follows", 1, 2)
    await trio.create("alone", 2)
    await trio.create("last", 2, 3)
    behind = await trio.create("behind", 2, 3)
    await trio.propose(2, topic_id=behind)
    remaining = await trio.brokers[1].controller.controlled_shutdown(2, trio.brokers[2].info.epoch)
    assert remaining == [TopicPartition("behind", 0)]
    assert trio.state() == LeaderAndIsr(3, 1, (3, 1), 1)
    assert trio.state("follows") == LeaderAndIsr(1, 0, (1,), 1)
    assert trio.state("last") == LeaderAndIsr(3, 1, (3,), 1)
    assert trio.state("alone").leader == 2
    await until(lambda: set(trio.brokers[2].replicas.states) == {("alone", 0), ("behind", 0)})
    # The broker may not join the ISR again before it has stopped.
    answer = await trio.propose(3, 1, 2, leader=3, leader_epoch=1, partition_epoch=1)
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    await trio.kill(2)
    await until(lambda: trio.state("alone").leader == -1)
    back = await trio.start(2)
    await until(lambda: trio.state("alone").leader == 2)
    await until(lambda: ("t", 0) in back.replicas.states)
    expected = trio.state().partition_epoch
    answer = await trio.propose(3, 1, 2, leader=3, leader_epoch=1, partition_epoch=expected)
    assert answer.error_code == ErrorCode.NONE


async def test_rebooted_sole_isr_member_waits_for_an_unclean_election(trio: Trio) -> None:
    await trio.propose(2)
    await trio.kill(2)
    await until(lambda: trio.state().leader == -1)
    await trio.start(2, restart=Restart.REBOOTED)
    await until(lambda: trio.state().doubtful == (2,))
    assert (trio.state().leader, trio.state().isr) == (-1, (2,))
    trio.unclean.add("t")
    for broker in trio.brokers.values():
        broker.controller.retry_elections("t")
    await until(lambda: trio.state().leader == 2)
    assert trio.state().doubtful == ()
    await until(lambda: trio.brokers[1].controller.elections.unclean == 1)


async def test_killed_follower_that_returns_before_its_session_ends_leaves_the_isr(
    trio: Trio,
) -> None:
    await trio.lose_session(3)
    trio.brokers[3].info = trio.brokers[3].info._replace(restart=Restart.KILLED)
    await trio.renew_session(3)
    await until(lambda: trio.state().isr == (2, 1))
    assert trio.state().leader_epoch == 0
