"""Brokers that restart before the controller has noticed their end."""

import asyncio
from collections.abc import Awaitable

import pytest

from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.broker.controller.active_controller import ActiveController
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import PartitionResponse
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.controller.harness import until
from tests.unit.broker.controller.trio import Trio


class HeldEvent:
    """An event of the controller that lasts as long as a test wants."""

    def __init__(self, trio: Trio) -> None:
        self._reached, self._release = asyncio.Event(), asyncio.Event()
        self._event = asyncio.ensure_future(trio.brokers[1].controller.ask(self._work))

    async def _work(self, _active: ActiveController) -> None:
        self._reached.set()
        await self._release.wait()

    async def reached(self) -> None:
        await self._reached.wait()

    async def release(self) -> None:
        self._release.set()
        await self._event


async def decided_before_it_is_noticed(
    trio: Trio, proposal: Awaitable[PartitionResponse], registering: Awaitable[None]
) -> tuple[PartitionResponse, HeldEvent]:
    """Queue a proposal while a broker registers again, and hold the notification of that until it
    is released."""
    before = HeldEvent(trio)
    await before.reached()
    deciding = asyncio.ensure_future(proposal)
    await until(lambda: trio.brokers[1].controller.queued == 1)
    after = HeldEvent(trio)
    await until(lambda: trio.brokers[1].controller.queued == 2)
    await registering
    await before.release()
    return await deciding, after


async def heard_all(trio: Trio, broker_id: int) -> None:
    """Return whether the controller has sent full metadata to the broker's new run."""
    await until(lambda: trio.brokers[broker_id].replicas.full_requests == 2)


async def test_decision_before_a_reboot_was_noticed_does_not_cover_it(trio: Trio) -> None:
    """Its zxid is later than that of the registration, which it did not know of."""
    answer, hold = await decided_before_it_is_noticed(
        trio, trio.propose(2, 3), trio.back_at_once(3, Restart.REBOOTED)
    )
    assert answer.isr == [2, 3]
    await hold.release()
    await heard_all(trio, 3)
    assert trio.state() == LeaderAndIsr(2, 0, (2,), 1)


async def test_leader_with_an_unnoticed_restart_does_not_lead_in_its_old_epoch(trio: Trio) -> None:
    """Two histories of one epoch could not be told apart (KIP-101)."""
    _, hold = await decided_before_it_is_noticed(
        trio, trio.propose(2, 3), trio.back_at_once(2, Restart.CLEAN)
    )
    await hold.release()
    await heard_all(trio, 2)
    assert (trio.state().leader, trio.state().leader_epoch) == (2, 1)


async def test_restart_unnoticed_by_a_dying_controller_ends_the_epoch_too(trio: Trio) -> None:
    """The successor finds the registration, and a state that is newer."""
    await decided_before_it_is_noticed(
        trio, trio.propose(2, 3), trio.back_at_once(3, Restart.REBOOTED)
    )
    assert trio.state().isr == (2, 3)
    await trio.kill(1)
    await until(lambda: trio.state().isr == (2,))
    assert trio.state() == LeaderAndIsr(2, 0, (2,), 2)


@pytest.mark.parametrize(("by_this_run", "offline"), [(False, set()), (True, {3})])
async def test_late_answer_of_an_earlier_run_is_ignored(
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

    async def answered(active: ActiveController) -> set[int]:
        await active.replicas_answered(of, answer)
        return active.state.partition(TopicPartition("t", 0)).offline

    assert await trio.brokers[1].controller.ask(answered) == offline
