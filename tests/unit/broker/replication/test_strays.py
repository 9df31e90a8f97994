"""Stray replicas: their topics were deleted while this broker was unreachable."""

from barnabas.broker.cluster.cache import FULL
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrTopicState
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

REMADE = bytes(reversed(TOPIC_ID))


async def test_recreated_topic_does_not_bring_old_records_back() -> None:
    replicas = Replicas()
    await replicas.lead()
    old = replicas.manager.partition("t", 0)
    # A broker receives changes in order, so this can only be an old request.
    assert await replicas.lead(epoch=1, topic_id=REMADE) == ErrorCode.INCONSISTENT_TOPIC_ID
    # A controller elected meanwhile sends the full state.
    assert await replicas.lead(topic_id=REMADE, full=True) == ErrorCode.NONE
    new = replicas.manager.partition("t", 0)
    assert new.topic_id == REMADE
    assert new.log is not old.log
    assert not old.is_leader
    assert sum("-stray" in name for name in replicas.files.listdir("/data")) == 1


async def test_log_of_the_deleted_topic_becomes_a_stray_before_the_new_one_is_led() -> None:
    replicas = Replicas()
    await replicas.lead()
    await replicas.stop(delete=False)
    assert await replicas.lead(topic_id=REMADE, full=True) == ErrorCode.NONE
    assert replicas.manager.partition("t", 0).topic_id == REMADE


async def test_replica_of_a_topic_with_a_damaged_node_is_no_stray() -> None:
    """The node of the topic is damaged: the controller knows the topic's name only."""
    replicas = Replicas()
    await replicas.lead()
    await replicas.stop(delete=False)
    closed = replicas.logs.get("t", 0)
    await replicas.lead(topic="led")
    await replicas.manager.apply_leader_and_isr(
        LeaderAndIsrRequest(
            controller_id=0,
            controller_epoch=2,
            type=FULL,
            topic_states=[LeaderAndIsrTopicState(topic_name=each) for each in ("t", "led")],
            live_leaders=[],
        )
    )
    assert replicas.manager.partition("led", 0).is_leader
    assert replicas.logs.get("t", 0) is closed
    assert not any("-stray" in name for name in replicas.files.listdir("/data"))
