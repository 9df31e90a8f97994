"""Writes of many records: they are made and replayed in steps, in the order of their key."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.decision import AT_ONCE, Decision, TransactionWriter
from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.hosted_shard import Mode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.steps import Steps
from tests.support.coordinator.harness import EPOCH, GROUP, PRODUCER, Groups
from tests.support.coordinator.numbers_host import Host, code_of_future
from tests.support.steps import taken

MANY = 600


class HeldSlices:
    """A slicer that runs work only when the test asks for it."""

    def __init__(self) -> None:
        self._work: list[tuple[Steps[Any], asyncio.Future[Any]]] = []

    def run(self, steps: Steps[Any]) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.append((steps, done))
        return done

    def finish(self) -> int:
        """Run all work to its end; return the number of its steps."""
        steps = 0
        while self._work:
            work, done = self._work.pop(0)
            result, more = taken(work)
            done.set_result(result)
            steps += more
        return steps


@pytest.fixture
def slices() -> HeldSlices:
    return HeldSlices()


@pytest.fixture
async def host(slices: HeldSlices) -> Host:
    return await Host(slices=slices).load()


def counts(host: Host) -> list[int]:
    """Return the number of records of each batch."""
    return [read_header(batch).record_count for batch in host.log.batches]


def other(host: Host, number: int) -> Any:
    """Write a number under another key."""
    return host.runtime.write(0, "other", lambda *_: Decision(None, (number,)))


async def test_long_write_holds_up_its_own_key_only(host: Host, slices: HeldSlices) -> None:
    long = host.write(*range(MANY))
    after = host.write(-1, mode=Mode.PIPELINED)
    assert other(host, -2) is None
    assert counts(host) == [1]
    assert slices.finish() >= MANY
    assert counts(host) == [1, MANY, 1]
    assert host.numbers == [-2, *range(MANY), -1]
    assert await long == []
    await after  # type: ignore[misc]


async def test_replays_follow_the_order_of_the_log(host: Host, slices: HeldSlices) -> None:
    """A marker and a write of another key are committed in the middle of a long replay."""
    host.write(-1, producer=TransactionWriter(PRODUCER, EPOCH))
    host.write(*range(MANY))
    host.log.held = True
    slices.finish()
    host.log.release()
    assert host.numbers == list(range(AT_ONCE))
    marked, written = host.end(), other(host, -2)
    assert host.numbers == list(range(AT_ONCE))
    slices.finish()
    assert host.numbers == [*range(MANY), -1, -2]
    assert await marked is await written is None  # type: ignore[misc]


async def test_refused_long_write_frees_its_key(host: Host, slices: HeldSlices) -> None:
    long = host.write(*range(MANY))
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    slices.finish()
    assert code_of_future(long) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.log.refusal = None
    assert host.write(1) == []
    assert host.numbers == [1]


async def test_long_write_is_not_appended_after_leadership_is_lost(
    host: Host, slices: HeldSlices
) -> None:
    long = host.write(*range(MANY))
    host.runtime.resigned(0)
    slices.finish()
    assert code_of_future(long) is ErrorCode.NOT_COORDINATOR
    assert host.log.batches == []


async def test_fault_in_a_long_replay_ends_the_service(host: Host, slices: HeldSlices) -> None:
    long = host.write(*range(MANY), 666)
    slices.finish()
    assert code_of_future(long) is ErrorCode.NOT_COORDINATOR
    assert [type(error) for _, error in host.faults] == [ArithmeticError]


async def test_offsets_are_committed_ended_and_deleted_in_steps(slices: HeldSlices) -> None:
    groups = await Groups(slices=slices).load()
    offsets = [NewOffset("t", index, index) for index in range(MANY)]
    producer = TransactionWriter(PRODUCER, EPOCH)
    commit = CommitOffsets(GROUP, -1, "", None, offsets, producer=producer)
    committed = groups.coordinator.commit_offsets(commit)
    # Made and replayed many at a time, encoded one by one.
    assert slices.finish() > MANY + 2 * (MANY // AT_ONCE) - 2
    assert await committed == [ErrorCode.NONE] * MANY
    assert groups.offset() is None
    ended = groups.end()
    assert slices.finish() >= MANY // AT_ONCE
    assert await ended is None
    assert groups.table.offsets.count == MANY
    deleted = groups.coordinator.delete_offsets(GROUP, {"t": range(1, MANY)})
    assert slices.finish() >= MANY
    assert await deleted == frozenset()
    assert (groups.table.offsets.count, groups.offset()) == (1, 0)
    gone = groups.coordinator.delete(GROUP)
    assert gone is None
    assert not groups.table.groups


async def test_commit_whose_every_offset_is_refused_writes_nothing(slices: HeldSlices) -> None:
    groups = await Groups(slices=slices, offset_metadata_max_bytes=3).load()
    offsets = [NewOffset("t", index, 1, metadata="long") for index in range(MANY)]
    committed = groups.coordinator.commit_offsets(CommitOffsets(GROUP, -1, "", None, offsets))
    slices.finish()
    assert await committed == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * MANY
    assert groups.log.batches == []
    assert groups.commit(1) == [ErrorCode.NONE]


async def test_members_of_a_large_group_are_answered_in_steps(slices: HeldSlices) -> None:
    """10,000 answers to JoinGroup in one iteration held the event loop for half a second."""
    groups = await Groups(slices=slices, initial_rebalance_delay_ms=10).load()
    joins = [groups.join(rebalance_ms=1000) for _ in range(MANY)]
    groups.time.pass_ms(30)
    assert groups.state == "CompletingRebalance"
    assert not any(each.done() for each in joins)
    assert slices.finish() >= MANY
    leader, *members = [each.result() for each in joins]
    assert [each.member_id for each in leader.members] == list(groups.group.members)
    assert {each.generation_id for each in members} == {1}
