"""Brokers that are back before the controller has noticed that they were gone."""

import asyncio
from collections.abc import Awaitable

import pytest

from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.metadata.znodes import LeaderAndIsr, Restart
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import PartitionResponse
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tests.unit.broker.controller.harness import until
from tests.unit.broker.controller.trio import Trio


async def decided_before_it_is_noticed(
    trio: Trio, proposal: Awaitable[PartitionResponse], registering: Awaitable[None]
) -> PartitionResponse:
    """A proposal is next in the controller's queue while a broker registers anew."""
    held, going_on = asyncio.Event(), asyncio.Event()

    async def hold(_tenure: object) -> None:
        held.set()
        await going_on.wait()

    holding = asyncio.ensure_future(trio.brokers[1].controller.ask(hold))
    await held.wait()
    deciding = asyncio.ensure_future(proposal)
    await until(lambda: trio.brokers[1].controller.queued)
    await registering
    going_on.set()
    await holding
    return await deciding


async def heard_all(trio: Trio, broker_id: int) -> None:
    """The controller has told the broker's new run everything."""
    await until(lambda: trio.brokers[broker_id].replicas.full_requests == 2)


async def test_a_decision_made_before_a_reboot_was_noticed_does_not_cover_it(trio: Trio) -> None:
    """It has a later zxid than the registration that it knew nothing of."""
    answer = await decided_before_it_is_noticed(
        trio, trio.propose(2, 3), trio.back_at_once(3, Restart.REBOOTED)
    )
    assert answer.isr == [2, 3]
    await heard_all(trio, 3)
    assert trio.state() == LeaderAndIsr(2, 0, (2,), 1)


async def test_a_leader_that_nobody_missed_does_not_lead_in_its_old_epoch(trio: Trio) -> None:
    """Two histories of one epoch could not be told apart (KIP-101)."""
    await decided_before_it_is_noticed(
        trio, trio.propose(2, 3), trio.back_at_once(2, Restart.CLEAN)
    )
    await heard_all(trio, 2)
    assert (trio.state().leader, trio.state().leader_epoch) == (2, 1)


@pytest.mark.parametrize(("by_this_run", "offline"), [(False, set()), (True, {3})])
async def test_what_an_earlier_run_answers_late_is_not_held_against_the_next(
    trio: Trio, by_this_run: bool, offline: set[int]
) -> None:
    earlier = trio.brokers[3].info
    await trio.back_at_once(3, Restart.CLEAN)
    await heard_all(trio, 3)
    error = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    answer = LeaderAndIsrResponse(
        topics=[LeaderAndIsrTopicError(topic_id=trio.topic_id, partition_errors=[error])]
    )
    of = trio.brokers[3].info if by_this_run else earlier

    async def answered(tenure: Tenure) -> set[int]:
        await tenure.replicas_answered(of, answer)
        return tenure.state.partition(TopicPartition("t", 0)).offline

    assert await trio.brokers[1].controller.ask(answered) == offline
