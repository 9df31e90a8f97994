"""Group APIs over a raw connection: every version of each, and the fields of single versions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    delete_topics,
    describe_groups,
    find_coordinator,
    heartbeat,
    list_groups,
    offset_delete,
)
from tests.integration.group_client import GROUP, GroupClient
from tests.support.data_path import connected, make_broker, running


@pytest.fixture
async def groups(tmp_path: Path) -> AsyncIterator[GroupClient]:
    keys = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 2}
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        topic_id = await client.create(partitions=2)
        groups = GroupClient(client, topic_id)
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
        await groups.ask(find_coordinator, request, 4)
        yield groups


@pytest.mark.parametrize("version", range(10))
async def test_group_lifecycle_works_in_every_version(groups: GroupClient, version: int) -> None:
    joined = await groups.member(version)
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert len(joined.members) == 1
    synced = await groups.sync(min(version, 5), joined)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    beat = heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id)
    assert (await groups.ask(heartbeat, beat, min(version, 4))).error_code == 0
    described = await groups.ask(
        describe_groups, describe_groups.DescribeGroupsRequest(groups=[GROUP]), min(version, 6)
    )
    assert described.groups[0].group_state == "Stable"
    assert described.groups[0].members[0].client_host == "/127.0.0.1"
    assert described.groups[0].members[0].member_assignment == b"mine"
    listed = await groups.ask(list_groups, list_groups.ListGroupsRequest(), min(version, 5))
    assert [each.group_id for each in listed.groups] == [GROUP]
    left = await groups.leave(min(version, 5), joined.member_id)
    assert left.error_code == 0
    again = await groups.leave(min(version, 5), joined.member_id)
    codes = [again.error_code, *(each.error_code for each in again.members)]
    assert codes == ([25] if version < 3 else [0, 25])
    gone = await groups.ask(
        delete_groups, delete_groups.DeleteGroupsRequest(groups_names=[GROUP]), min(version, 2)
    )
    assert gone.results[0].error_code == 0


@pytest.mark.parametrize("version", range(10))
async def test_refused_join_returns_its_error_in_every_version(
    groups: GroupClient, version: int
) -> None:
    answer = await groups.join(version, "made-up")
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.protocol_name == ("" if version < 7 else None)
    assert (answer.generation_id, answer.leader, answer.member_id) == (-1, "", "made-up")


async def test_from_version_5_sync_names_its_protocol(groups: GroupClient) -> None:
    joined = await groups.member(9)
    missing = await groups.sync(5, joined, protocol_name=None)
    other = await groups.sync(5, joined, protocol_name="sticky")
    assert missing.error_code == other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await groups.sync(5, joined)).error_code == 0


@pytest.mark.parametrize("version", range(2, 11))
async def test_an_offset_is_committed_in_every_version(groups: GroupClient, version: int) -> None:
    assert await groups.commit(version, 7) == 0
    assert await groups.fetch(version) == [7, -1]
    assert await groups.fetch(version, everything=True) == [7]


async def test_offset_fetch_version_0_returns_committed_offsets(groups: GroupClient) -> None:
    await groups.commit(2, 7)
    assert await groups.fetch(1) == [7, -1]


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_to_an_unknown_partition_is_refused(groups: GroupClient, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await groups.commit(version, 7, partition=2) == unknown
    if version >= 10:
        code = await groups.commit(version, 7, topic={"topic_id": b"x" * 16})
        assert code == ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert await groups.commit(version, 7, topic={"name": "other"}) == unknown


async def test_commit_with_a_generation_of_an_unknown_group_is_refused(groups: GroupClient) -> None:
    older = await groups.commit(8, 7, generation_id_or_member_epoch=3)
    newer = await groups.commit(9, 7, generation_id_or_member_epoch=3)
    assert (older, newer) == (ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND)


async def test_unknown_group_is_described_as_dead(groups: GroupClient) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["none"])
    for version in range(6):
        (group,) = (await groups.ask(describe_groups, request, version)).groups
        assert (group.error_code, group.group_state) == (0, "Dead")
    (group,) = (await groups.ask(describe_groups, request, 6)).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == "Group none not found."


async def test_groups_are_listed_by_state_and_type(groups: GroupClient) -> None:
    await groups.commit(9, 1)

    async def listed(states: list[str], types: list[str]) -> list[str]:
        request = list_groups.ListGroupsRequest(states_filter=states, types_filter=types)
        answer = await groups.ask(list_groups, request, 5)
        return [f"{each.group_id} {each.group_state} {each.group_type}" for each in answer.groups]

    assert await listed([], []) == ["g Empty classic"]
    assert await listed(["empty"], ["Classic"]) == ["g Empty classic"]
    assert await listed(["Stable"], []) == await listed([], ["consumer"]) == []


async def test_find_coordinator_returns_one_or_many(groups: GroupClient) -> None:
    for version in range(4):
        single = await groups.ask(
            find_coordinator, find_coordinator.FindCoordinatorRequest(key=GROUP), version
        )
        assert (single.error_code, single.host) == (0, "127.0.0.1")
    for version in range(4, 7):
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["a", "b"])
        many = await groups.ask(find_coordinator, request, version)
        assert [(each.key, each.error_code) for each in many.coordinators] == [("a", 0), ("b", 0)]
    refused = []
    for key_type in (1, 2, 3):
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type)
        answer = await groups.ask(find_coordinator, request, 6)
        refused.append(ErrorCode.of(answer.coordinators[0].error_code).name)
    assert refused == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST"]


async def test_offsets_are_deleted_one_by_one(groups: GroupClient) -> None:
    await groups.commit(9, 7)
    request = offset_delete.OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=each,
                partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
            )
            for each in ("t", "unknown")
        ],
    )
    answer = await groups.ask(offset_delete, request, 0)
    assert [(each.name, each.partitions[0].error_code) for each in answer.topics] == [
        ("t", 0),
        ("unknown", 3),
    ]
    assert await groups.fetch(9) == [-1, -1]


async def test_recreated_topic_has_no_committed_offsets(groups: GroupClient) -> None:
    await groups.commit(9, 7)
    request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
    await groups.ask(delete_topics, request, 5)
    groups.topic_id = await groups.client.create(partitions=2)
    assert await groups.fetch(9) == await groups.fetch(10) == [-1, -1]


async def test_a_broker_that_stops_answers_members_that_wait(tmp_path: Path) -> None:
    broker = make_broker(tmp_path, group_initial_rebalance_delay_ms=60_000)
    await broker.start()
    try:
        async with connected(broker) as client, connected(broker) as other:
            groups = GroupClient(client, bytes(16))
            request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
            await groups.ask(find_coordinator, request, 4)
            waiting = asyncio.create_task(groups.join(3))
            listing = list_groups.ListGroupsRequest()
            while not (await other.connection.request(list_groups.API, listing)).groups:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(broker.stop())
            assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    finally:
        await stopping
