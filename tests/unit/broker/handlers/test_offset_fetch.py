"""OffsetFetch with open transactions: the answers to clients that require stable offsets, and to
clients that are too old to do so."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers import offset_fetch
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.security.principal import ANONYMOUS
from tests.support.coordinator.harness import GROUP, Groups
from tests.support.steps import taken
from tests.unit.broker.handlers.group_handlers import Topics, ask

OLD, NEW = range(1, 7), range(7, 11)
Found = list[tuple[str, int]]


class Rig:
    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.blocks = True
        self.topics = Topics("t", "u")
        self.parts = groups.coordinator, self.topics, lambda: self.blocks

    def fetch(self, version: int, *topics: str, stable: bool = False, groups: int = 1) -> Any:
        """Fetch partition 0 of each topic, or all offsets if no topic is named."""
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
                topics=[self.topic(each, version) for each in topics] or None,
            )
            request = OffsetFetchRequest(groups=[asked] * groups)
        if version >= 7:
            request.require_stable = stable
        return ask(offset_fetch, self.parts, request, version)

    def topic(self, name: str, version: int) -> OffsetFetchRequestTopics:
        known = self.topics.topic(name)
        assert known is not None
        if version < 10:
            return OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        return OffsetFetchRequestTopics(topic_id=known.topic_id, partition_indexes=[0])


def found(answer: Any) -> Found:
    """Return error and offset of every partition."""
    group = answer.groups[0] if answer.groups else answer
    return [
        (ErrorCode.of(each.error_code).name, each.committed_offset)
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
async def test_require_stable_reports_pending_offset(rig: Rig, version: int) -> None:
    rig.groups.commit_transactional(5)
    answer = rig.fetch(version, "t", "u", stable=True)
    assert found(answer) == [("UNSTABLE_OFFSET_COMMIT", -1), ("NONE", 2)]
    assert found(rig.fetch(version, "t", "u")) == [("NONE", 1), ("NONE", 2)]
    rig.groups.end()
    assert found(rig.fetch(version, "t", "u", stable=True)) == [("NONE", 5), ("NONE", 2)]


@pytest.mark.parametrize("version", NEW)
async def test_unstable_offsets_are_among_all_offsets(rig: Rig, version: int) -> None:
    rig.groups.commit_transactional(5)
    answer = rig.fetch(version, stable=True)
    assert found(answer) == [("UNSTABLE_OFFSET_COMMIT", -1), ("NONE", 2)]


@pytest.mark.parametrize("version", OLD)
async def test_old_clients_wait_for_the_transaction(rig: Rig, version: int) -> None:
    """The group and every partition have the error: aiokafka reads only the latter."""
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
async def test_old_clients_do_not_wait_if_switched_off(rig: Rig, version: int) -> None:
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
async def test_new_member_waits_for_commits_in_flight(rig: Rig, version: int) -> None:
    """The previous member wrote them in time, and its transaction may still be committed."""
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
    asked = [
        OffsetFetchRequestGroup(group_id=GROUP, topics=[rig.topic(name, 9)]) for name in ("t", "u")
    ]
    request = OffsetFetchRequest(groups=asked, require_stable=True)
    answer = asyncio.ensure_future(ask(offset_fetch, rig.parts, request, 9))
    await asyncio.sleep(0)
    rig.groups.log.release()
    assert [found_in(each) for each in (await answer).groups] == [[5], [2]]


def found_in(group: Any) -> list[int]:
    return [each.committed_offset for topic in group.topics for each in topic.partitions]


async def test_wait_for_stable_offsets_times_out(rig: Rig) -> None:
    rig.groups.log.held = True
    rig.groups.commit(5)
    answer = asyncio.ensure_future(rig.fetch(9, "t", stable=True))
    await asyncio.sleep(0)
    rig.groups.time.pass_ms(5_000)
    assert (await answer).groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(1, 11))
async def test_loading_group_reports_error_for_every_partition(rig: Rig, version: int) -> None:
    """aiokafka reads partitions only: an empty list would send it to the start of the topic."""
    rig.groups.runtime.elected(0, rig.groups.log)
    answer = rig.fetch(version, "t")
    if version < 8:
        assert found(answer) == [("COORDINATOR_LOAD_IN_PROGRESS", -1)]
    if version >= 2:
        group = answer.groups[0] if version >= 8 else answer
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await rig.groups.load()


async def test_partition_lost_between_two_slices_has_no_offsets(rig: Rig) -> None:
    """Its table may be empty by then, and a group without offsets starts from the beginning."""
    asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    request = OffsetFetchRequest(groups=[asked])
    context = RequestContext(9, 9, 0, "test", ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1, 0)
    steps: Any = offset_fetch.handle(*rig.parts, request, context)
    for _ in range(4):
        next(steps)
    rig.groups.runtime.resigned(0)
    answer, taken_later = taken(steps)
    assert taken_later
    assert (answer.groups[0].error_code, answer.groups[0].topics) == (
        ErrorCode.NOT_COORDINATOR,
        [],
    )


@pytest.mark.parametrize("version", [7, 9, 10])
async def test_partition_that_a_request_repeats_is_answered_once(rig: Rig, version: int) -> None:
    assert found(rig.fetch(version, "t", "u", "t")) == [("NONE", 1), ("NONE", 2)]


async def test_group_that_a_request_repeats_is_answered_once(rig: Rig) -> None:
    assert len(rig.fetch(9, groups=3).groups) == 1
    assert len(rig.fetch(9, "t", groups=3).groups) == 1
