"""Produce with producer ids that are new to a partition, from a principal with a limit of them."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.transaction.metadata import Producer
from tests.support.steps import all_taken
from tests.unit.broker.handlers.transactional_produce import T0, Rig, batch, codes
from tests.unit.broker.replication.replicas import Replicas

LIMIT = 3


async def rig(isr: tuple[int, ...] = (0,), **topic: str) -> Rig:
    replicas = Replicas(**topic)
    await replicas.lead(isr=isr, replicas=(0, 1))
    return Rig(replicas, {"max.producer.ids.per.principal": str(LIMIT)})


async def sent(rig: Rig, producer_id: int, sequence: int = 0, **options: Any) -> str:
    """Send a batch of an idempotent producer with an id of its own choice; return the error."""
    records = batch(b"v", producer=Producer(producer_id, 0), sequence=sequence, transactional=False)
    answer = all_taken(rig.send(records, key=None, **options))
    if isinstance(answer, asyncio.Future):
        answer = await asyncio.wait_for(answer, 5)
    (code,) = codes(answer)
    (partition,) = answer.responses[0].partition_responses
    assert ("max.producer.ids.per.principal" in (partition.error_message or "")) == (
        code == "POLICY_VIOLATION"
    )
    return code


def known(rig: Rig) -> int:
    return len(rig.replicas.manager.partition(*T0).log.producers)


@pytest.mark.parametrize("topic", [{}, {"cleanup_policy": "compact"}], ids=["plain", "inspected"])
async def test_invented_ids_beyond_the_limit_leave_nothing_in_memory(topic: dict[str, str]) -> None:
    leader = await rig(**topic)
    outcomes = [await sent(leader, 1000 + number) for number in range(10)]
    assert outcomes == ["NONE"] * LIMIT + ["POLICY_VIOLATION"] * 7
    assert known(leader) == LIMIT


async def test_known_producers_go_on_beyond_the_limit() -> None:
    leader = await rig()
    for number in range(LIMIT + 1):
        await sent(leader, number)
    assert [await sent(leader, number, sequence=1) for number in range(LIMIT)] == ["NONE"] * LIMIT
    assert await sent(leader, 0, sequence=9) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


async def test_producers_without_an_id_have_no_limit() -> None:
    leader = await rig()
    plain = batch(b"v", producer=Producer(-1, -1), sequence=-1, transactional=False)
    answers = [codes(all_taken(leader.send(plain, key=None))) for _ in range(2 * LIMIT)]
    assert answers == [["NONE"]] * (2 * LIMIT)


async def test_batch_that_is_refused_does_not_count() -> None:
    """A producer repeats its first batch until there are enough replicas."""
    leader = await rig(min_insync_replicas="2")
    for _ in range(2 * LIMIT):
        assert await sent(leader, 7) == "NOT_ENOUGH_REPLICAS"
    outcomes = [await sent(leader, number, acks=1) for number in range(LIMIT + 1)]
    assert outcomes == ["NONE"] * LIMIT + ["POLICY_VIOLATION"]


async def test_broker_that_does_not_lead_says_so_beyond_the_limit() -> None:
    leader = await rig()
    replicas, _, *others = leader.parts
    leader.parts = replicas, leader.replicas.cache, *others
    for number in range(LIMIT):
        await sent(leader, number)
    await leader.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    assert await sent(leader, 99) == "NOT_LEADER_OR_FOLLOWER"
    await leader.replicas.fetchers.stop()
