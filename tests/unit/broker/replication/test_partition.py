"""A partition: allowed appends, the high watermark and woken requests."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record, build_batch
from tests.support.mutants import Mutant, require_found
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])


async def led(broker: Replicas, **state: Any) -> Partition:
    assert await broker.lead(**state) == ErrorCode.NONE
    return broker.manager.partition("t", 0)


def append(partition: Partition, acks: int = ACKS_ALL) -> None:
    partition.append(BATCH, now_ms=1, required_acks=acks)


def refused(partition: Partition, acks: int = ACKS_ALL) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        append(partition, acks)
    return caught.value.code


class DelayedFetch:
    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1


class Follower:
    """A follower watch at the end of the log, which counts its calls."""

    def __init__(self, partition: Partition) -> None:
        self.grows = self.commits = 0
        partition.follower_watches[self] = None

    def log_grew(self) -> None:
        self.grows += 1

    def watermark_moved(self) -> None:
        self.commits += 1


async def test_follower_watch_is_called_once_for_new_records() -> None:
    partition = await led(Replicas(), isr=(0, 1), replicas=(0, 1))
    follower = Follower(partition)
    append(partition)
    append(partition)
    assert (follower.grows, follower.commits) == (1, 0)


async def test_follower_watch_is_called_for_high_watermark_and_retention() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0, 1), replicas=(0, 1))
    append(partition)
    follower = Follower(partition)
    replicas.fetched(1, 1)
    replicas.manager.log_start_moved(partition.log)
    assert (follower.grows, follower.commits) == (0, 2)


async def test_single_replica_commits_at_once_and_wakes_delayed_fetches() -> None:
    partition = await led(Replicas())
    fetch, told = DelayedFetch(), []
    partition.delayed_fetches[fetch] = None
    partition.add_waiter(1, told.append)
    append(partition)
    assert partition.high_watermark == 1
    assert told == [None]
    assert fetch.wakes == 1


@pytest.mark.parametrize("who", ["waiter", "fetch", "watch", "flush"])
async def test_append_that_is_committed_at_once_wakes_whoever_waits(who: str) -> None:
    broker = Replicas()
    partition = await led(broker)
    told: list[object] = []
    fetch = DelayedFetch()
    if who == "waiter":
        partition.add_waiter(1, told.append)
    elif who == "fetch":
        partition.delayed_fetches[fetch] = None
    elif who == "watch":
        watch = Follower(partition)
    else:
        partition._flush_messages = 1
        partition._request_flush = told.append
    append(partition)
    assert partition.high_watermark == 1
    woken = {"waiter": told == [None], "fetch": fetch.wakes == 1, "flush": told == [partition]}
    assert (watch.grows, watch.commits) == (1, 1) if who == "watch" else woken[who]


MUTANTS = tuple(
    Mutant(
        Partition.append,
        old,
        new,
        "test_append_that_is_committed_at_once_wakes_whoever_waits",
        (who,),
    )
    for who, old, new in (
        ("waiter", "self.committed.waiting or ", ""),
        ("fetch", "self.delayed_fetches or ", ""),
        ("watch", " or self.follower_watches", ""),
        ("flush", " or log.log_end_offset >= self._flush_messages", ""),
        ("waiter", "self._log_grew()", "pass"),
    )
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(mutant: Mutant) -> None:
    require_found(mutant, globals())


async def test_high_watermark_waits_for_every_in_sync_follower() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0, 1, 2), replicas=(0, 1, 2))
    append(partition)
    append(partition)
    assert partition.high_watermark == 0
    replicas.fetched(1, 2)
    assert partition.high_watermark == 0
    replicas.fetched(2, 1)
    assert partition.high_watermark == 1


async def test_follower_positions_of_an_older_epoch_do_not_count() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0, 1), replicas=(0, 1))
    append(partition)
    replicas.fetched(1, 1)
    assert partition.high_watermark == 1
    await led(replicas, isr=(0, 1), replicas=(0, 1), epoch=1)
    append(partition)
    assert partition.high_watermark == 1


async def test_shrunken_isr_commits_the_records_of_the_rest() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0, 1), replicas=(0, 1))
    append(partition)
    assert partition.high_watermark == 0
    await led(replicas, isr=(0,), replicas=(0, 1))
    assert partition.high_watermark == 1


async def test_isr_below_min_insync_refuses_acks_all_and_commits_nothing() -> None:
    partition = await led(Replicas(min_insync_replicas="2"), isr=(0,), replicas=(0, 1))
    assert refused(partition) is ErrorCode.NOT_ENOUGH_REPLICAS
    append(partition, acks=1)
    assert partition.log.log_end_offset == 1
    assert partition.high_watermark == 0
    assert partition.is_under_min_isr
    assert partition.is_under_replicated


async def test_adding_replicas_do_not_raise_min_insync() -> None:
    broker = Replicas(min_insync_replicas="2")
    moving = {"replicas": (1, 2, 0), "adding": (1, 2)}
    partition = await led(broker, **moving)
    append(partition)
    assert partition.high_watermark == 1
    assert partition.reassigning
    assert partition.lacks_replicas
    assert partition.is_at_min_isr
    assert not partition.is_under_replicated
    assert not (await led(broker, replicas=(1, 0), isr=(0, 1), epoch=1)).reassigning
    assert refused(await led(broker, replicas=(1, 0), epoch=2)) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_min_insync_is_limited_to_the_number_of_replicas() -> None:
    partition = await led(Replicas(min_insync_replicas="2"))
    append(partition)
    assert partition.high_watermark == 1
    assert partition.is_at_min_isr


async def test_resigned_leader_refuses_appends_and_fails_waiters() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0, 1), replicas=(0, 1))
    append(partition)
    told: list[KafkaError | None] = []
    fetch = DelayedFetch()
    partition.delayed_fetches[fetch] = None
    partition.add_waiter(1, told.append)
    await replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    assert [error.code for error in told if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert refused(partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch.wakes == 1


async def test_leader_epochs_of_clients_are_fenced() -> None:
    partition = await led(Replicas(), epoch=5)
    partition.require_leader(5)
    partition.require_leader()
    for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as caught:
            partition.require_leader(epoch)
        assert caught.value.code is code


async def test_flush_messages_requests_an_fsync_after_that_many_records() -> None:
    partition = await led(Replicas(flush_messages="3"))
    append(partition)
    append(partition)
    await asyncio.sleep(0)
    assert partition.log.flushed_offset == 0
    assert partition.high_watermark == 2
    append(partition)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert partition.log.flushed_offset == 3


async def test_records_acknowledged_before_flushing_first_are_flushed_too() -> None:
    replicas = Replicas()
    partition = await led(replicas)
    append(partition)
    await replicas.flusher.idle()
    assert partition.log.flushed_offset == 0
    assert partition.high_watermark == 1
    replicas.configs["flush_messages"] = "1"
    replicas.manager.configure("t", replicas.config("t"))
    await replicas.flusher.idle()
    assert partition.log.flushed_offset == 1


async def test_changed_configuration_applies_at_once() -> None:
    replicas = Replicas()
    partition = await led(replicas, isr=(0,), replicas=(0, 1))
    append(partition)
    replicas.configs["min_insync_replicas"] = "2"
    replicas.manager.configure("t", replicas.config("t"))
    assert refused(partition) is ErrorCode.NOT_ENOUGH_REPLICAS
