"""OffsetFetch beside transactions: what clients are told that ask for stable offsets, and what
clients that are too old to ask."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers import offset_fetch
from barnabas.broker.handlers.offset_fetch import OffsetFetchHandler
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.unit.broker.handlers.group_handlers import Topics, ask
from tests.unit.coordinator.harness import GROUP, Groups

OLD, NEW = range(1, 7), range(7, 11)
Found = list[tuple[str, int]]


class Rig:
    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.blocks = True
        self.topics = Topics("t", "u")
        self.handler = OffsetFetchHandler(
            groups.coordinator,
            self.topics,  # type: ignore[arg-type]
            lambda: self.blocks,
        )

    def fetch(self, version: int, *topics: str, stable: bool = False, groups: int = 1) -> Any:
        """Partition 0 of each topic, or all of the group where none is named."""
        if version < 8:
            request = OffsetFetchRequest(
                group_id=GROUP,
                topics=[
                    OffsetFetchRequestTopic(name=each, partition_indexes=[0]) for each in topics
                ]
                or None,
            )
        else:
            asked = OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[self._topic(each, version) for each in topics] or None,
            )
            request = OffsetFetchRequest(groups=[asked] * groups)
        if version >= 7:
            request.require_stable = stable
        return ask(offset_fetch, self.handler, request, version)

    def _topic(self, name: str, version: int) -> OffsetFetchRequestTopics:
        known = self.topics.topic(name)
        assert known is not None
        if version < 10:
            return OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        return OffsetFetchRequestTopics(topic_id=known.topic_id, partition_indexes=[0])


def found(answer: Any) -> Found:
    """Error and offset of every partition."""
    group = answer.groups[0] if answer.groups else answer
    return [
        (ErrorCode(each.error_code).name, each.committed_offset)
        for topic in group.topics
        for each in topic.partitions
    ]


@pytest.fixture
async def rig() -> Rig:
    rig = Rig(await Groups().load())
    rig.groups.commit(1)
    rig.groups.commit(2, topic="u")
    return rig


@pytest.mark.parametrize("version", NEW)
async def test_who_requires_stable_offsets_is_told_of_a_pending_one(rig: Rig, version: int) -> None:
    rig.groups.commit_transactional(5)
    answer = rig.fetch(version, "t", "u", stable=True)
    assert found(answer) == [("UNSTABLE_OFFSET_COMMIT", -1), ("NONE", 2)]
    assert found(rig.fetch(version, "t", "u")) == [("NONE", 1), ("NONE", 2)]
    rig.groups.end()
    assert found(rig.fetch(version, "t", "u", stable=True)) == [("NONE", 5), ("NONE", 2)]


@pytest.mark.parametrize("version", NEW)
async def test_all_offsets_are_told_with_the_unstable_ones(rig: Rig, version: int) -> None:
    rig.groups.commit_transactional(5)
    answer = rig.fetch(version, stable=True)
    assert found(answer) == [("UNSTABLE_OFFSET_COMMIT", -1), ("NONE", 2)]


@pytest.mark.parametrize("version", OLD)
async def test_old_clients_wait_for_the_transaction(rig: Rig, version: int) -> None:
    """Told of the group and of every partition: aiokafka reads only the latter."""
    rig.groups.commit_transactional(5)
    answer = rig.fetch(version, "t", "u")
    assert found(answer) == [("COORDINATOR_LOAD_IN_PROGRESS", -1)] * 2
    if version >= 2:
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert found(rig.fetch(version, "u")) == [("NONE", 2)]
    rig.groups.end()
    answer = rig.fetch(version, "t", "u")
    assert found(answer) == [("NONE", 5), ("NONE", 2)]
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", OLD)
async def test_old_clients_need_not_wait_where_that_is_switched_off(rig: Rig, version: int) -> None:
    rig.blocks = False
    rig.groups.commit_transactional(5)
    assert found(rig.fetch(version, "t", "u")) == [("NONE", 1), ("NONE", 2)]


@pytest.mark.parametrize("version", OLD[1:])
async def test_old_clients_wait_when_they_ask_for_all(rig: Rig, version: int) -> None:
    rig.groups.commit_transactional(5)
    assert rig.fetch(version).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.groups.end(committed=False)
    assert found(rig.fetch(version)) == [("NONE", 1), ("NONE", 2)]


@pytest.mark.parametrize("version", [6, 7, 9])
async def test_a_member_that_takes_over_waits_for_commits_on_their_way(
    rig: Rig, version: int
) -> None:
    """The member before was allowed to write them, and its transaction may be committed yet."""
    rig.groups.log.held = True
    rig.groups.commit_transactional(5)
    answer = asyncio.ensure_future(rig.fetch(version, "t", stable=True))
    await asyncio.sleep(0)
    assert not answer.done()
    rig.groups.log.release()
    told = "COORDINATOR_LOAD_IN_PROGRESS" if version < 7 else "UNSTABLE_OFFSET_COMMIT"
    assert found(await answer) == [(told, -1)]


async def test_several_groups_wait_together(rig: Rig) -> None:
    rig.groups.log.held = True
    rig.groups.commit(5)
    answer = asyncio.ensure_future(rig.fetch(9, "t", stable=True, groups=2))
    await asyncio.sleep(0)
    rig.groups.log.release()
    assert [found_in(each) for each in (await answer).groups] == [[5], [5]]


def found_in(group: Any) -> list[int]:
    return [each.committed_offset for topic in group.topics for each in topic.partitions]


async def test_who_waits_too_long_is_told_so(rig: Rig) -> None:
    rig.groups.log.held = True
    rig.groups.commit(5)
    answer = asyncio.ensure_future(rig.fetch(9, "t", stable=True))
    await asyncio.sleep(0)
    rig.groups.time.pass_ms(5_000)
    assert (await answer).groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(1, 11))
async def test_while_a_group_is_loaded_no_partition_looks_as_if_it_was_never_committed(
    rig: Rig, version: int
) -> None:
    """aiokafka reads partitions only: an empty list would send it to the start of the topic."""
    rig.groups.runtime.elected(0, rig.groups.log)
    answer = rig.fetch(version, "t")
    if version < 8:
        assert found(answer) == [("COORDINATOR_LOAD_IN_PROGRESS", -1)]
    if version >= 2:
        group = answer.groups[0] if version >= 8 else answer
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await rig.groups.load()
