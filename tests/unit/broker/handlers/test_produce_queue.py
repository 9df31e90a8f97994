"""Produce with batches in the append queue, and leaderships that end meanwhile."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers import produce
from barnabas.broker.replication.partition import Partition
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.log.record_steps import RECORDS_PER_STEP
from tests.support.steps import taken
from tests.unit.broker.handlers.transactional_produce import Rig, batch, codes
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

OTHER_ID = b"u" * 16
SMALL = batch(b"small", transactional=False, producer=Producer(-1, -1), sequence=-1)


def large(steps: int) -> bytes:
    """Return a batch that is validated in so many steps."""
    records = [Record(at, 1_000, b"k", b"v") for at in range(steps * RECORDS_PER_STEP)]
    return build_batch(records)


@pytest.fixture
async def rig() -> Rig:
    """A leader of two compacted topics, whose batches it looks into, with a silent follower."""
    replicas = Replicas(cleanup_policy="compact")
    for topic, topic_id in (("t", TOPIC_ID), ("u", OTHER_ID)):
        await replicas.lead(topic=topic, topic_id=topic_id, isr=(0, 1), replicas=(0, 1))
    rig = Rig(replicas)
    manager, _, *others = rig.parts
    rig.parts = manager, replicas.cache, *others
    return rig


async def appended(rig: Rig, first: bytes) -> tuple["asyncio.Future[Any]", Partition]:
    """Send a batch for t-0 and a larger one for u-0; return when the first is appended."""
    answer = asyncio.ensure_future(rig.send(first, ("u", 0, large(20)), key=None))
    partition = rig.replicas.manager.partition("t", 0)
    while not partition.log.log_end_offset:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not answer.done()
    return answer, partition


async def codes_of(rig: Rig, answer: "asyncio.Future[Any]") -> list[str]:
    """Have the follower fetch everything of u-0 once it is written; return the answer's errors."""
    other = rig.replicas.manager.partition("u", 0)
    while not other.log.log_end_offset:  # noqa: ASYNC110
        await asyncio.sleep(0)
    rig.replicas.fetched(1, other.log.log_end_offset, topic="u")
    return codes(await asyncio.wait_for(answer, 2))


@pytest.mark.parametrize("first", [large(2), SMALL], ids=["queued", "not queued"])
async def test_leadership_that_ends_while_other_batches_are_queued_is_answered_at_once(
    rig: Rig, first: bytes
) -> None:
    answer, _ = await appended(rig, first)
    await rig.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    assert await codes_of(rig, answer) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]


@pytest.mark.parametrize("first", [large(2), SMALL], ids=["queued", "not queued"])
async def test_records_that_another_leader_committed_acknowledge_no_earlier_append(
    rig: Rig, first: bytes
) -> None:
    """The next leader may have written other records at the same offsets."""
    answer, partition = await appended(rig, first)
    await rig.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    partition.learn_high_watermark(partition.log.log_end_offset)
    assert await codes_of(rig, answer) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]


async def test_topic_created_again_while_its_batch_is_queued_acknowledges_nothing(
    rig: Rig,
) -> None:
    answer, partition = await appended(rig, large(2))
    await rig.replicas.stop(delete=True)
    await rig.replicas.lead(isr=(0,), replicas=(0,), topic_id=bytes(15) + b"n")
    again = rig.replicas.manager.partition("t", 0)
    assert again is not partition
    again.append(bytearray(large(2)), now_ms=1)
    assert await codes_of(rig, answer) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]


async def test_batches_are_acknowledged_after_the_queue(rig: Rig) -> None:
    answer, partition = await appended(rig, large(2))
    rig.replicas.fetched(1, partition.log.log_end_offset)
    assert await codes_of(rig, answer) == ["NONE", "NONE"]


async def test_many_partitions_are_appended_in_steps(rig: Rig) -> None:
    missing = [("t", index, SMALL) for index in range(1, 2000)]
    answer, steps = taken(rig.send(("t", 0, SMALL), *missing, key=None, acks=1))
    assert codes(answer) == ["NONE"] + ["UNKNOWN_TOPIC_OR_PARTITION"] * 1999
    assert steps > 2000


async def test_leadership_that_ends_between_two_steps_is_answered_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "MANY", 0)
    steps = rig.send(SMALL, ("u", 0, SMALL), key=None)
    partition = rig.replicas.manager.partition("t", 0)
    while not partition.log.log_end_offset:
        next(steps)
    await rig.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    answer, _ = taken(steps)
    rig.replicas.fetched(1, 1, topic="u")
    assert codes(await asyncio.wait_for(answer, 2)) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]
