"""Committed offsets: the right to commit, visibility, deletion and expiration."""

import asyncio

import pytest

from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.soon import wait
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.types import ZERO_UUID
from tests.support.coordinator.harness import GROUP, Groups, code_of, delete, subscription

RETENTION_MS = GroupSettings().offsets_retention_ms
HOUR_MS = 3_600_000
READS_T = (("range", subscription("t")),)


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


# -- committing --------------------------------------------------------------------------------


async def test_a_simple_consumer_commits_without_a_group(groups: Groups) -> None:
    assert groups.commit(42)[0] is ErrorCode.NONE
    assert groups.offset() == 42
    assert groups.state == "Empty"


async def test_the_empty_group_id_keeps_offsets(groups: Groups) -> None:
    groups.commit(42, group_id="")
    assert groups.offset("") == 42


async def test_a_member_commits_in_its_generation(groups: Groups) -> None:
    (member,) = await groups.stable()
    groups.commit(5, member_id=member, generation=1)
    assert groups.offset() == 5


async def test_commit_with_other_member_or_generation_is_refused(groups: Groups) -> None:
    (member,) = await groups.stable()
    assert code_of(lambda: groups.commit(1)) == "UNKNOWN_MEMBER_ID"
    assert code_of(lambda: groups.commit(1, member_id="x", generation=1)) == "UNKNOWN_MEMBER_ID"
    assert code_of(lambda: groups.commit(1, member_id=member, generation=2)) == "ILLEGAL_GENERATION"
    assert groups.offset() is None


async def test_commit_with_generation_to_unknown_group_is_refused(groups: Groups) -> None:
    code = code_of(lambda: groups.commit(1, member_id="m", generation=3))
    assert code == "GROUP_ID_NOT_FOUND"
    assert not groups.table.groups


async def test_commit_between_join_and_assignment_is_refused(groups: Groups) -> None:
    joined = groups.join()
    groups.time.pass_ms(3_000)
    member = (await joined).member_id
    code = code_of(lambda: groups.commit(1, member_id=member, generation=1))
    assert code == "REBALANCE_IN_PROGRESS"


async def test_a_commit_keeps_the_session_alive(groups: Groups) -> None:
    (member,) = await groups.stable(session_ms=10_000)
    for offset in range(5):
        groups.time.pass_ms(6_000)
        groups.commit(offset, member_id=member, generation=1)
    assert groups.state == "Stable"


async def test_oversized_offset_metadata_is_refused(groups: Groups) -> None:
    answer = groups.commit(1, metadata="x" * 4097)
    (code,) = answer
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert groups.offset() is None
    groups.commit(1, metadata="x" * 4096)
    assert groups.offset() == 1


async def test_offset_is_visible_once_committed(groups: Groups) -> None:
    groups.commit(1)
    groups.log.held = True
    first, second = groups.commit(2), groups.commit(3)
    assert groups.offset() == 1
    assert groups.log.record_count == 3
    groups.log.release()
    await asyncio.gather(first, second)
    assert groups.offset() == 3


async def test_oversized_group_id_is_refused(groups: Groups) -> None:
    assert code_of(lambda: groups.commit(1, group_id="g" * 40_000)) == "INVALID_REQUEST"
    assert groups.faults == []


# -- forgetting --------------------------------------------------------------------------------


async def test_offsets_of_subscribed_topics_are_not_deleted(groups: Groups) -> None:
    (member,) = await groups.stable(protocols=READS_T)
    groups.commit(1, member_id=member, generation=1)
    groups.commit(1, member_id=member, generation=1, topic="left")
    assert delete(groups) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(groups, "left") == ErrorCode.NONE
    assert (groups.offset(), groups.offset(topic="left")) == (1, None)


async def test_offsets_of_non_consumer_group_are_deleted_only_when_empty(groups: Groups) -> None:
    await groups.stable(protocol_type="connect")
    assert code_of(lambda: delete(groups)) == "NON_EMPTY_GROUP"
    assert code_of(lambda: delete(groups, group_id="none")) == "GROUP_ID_NOT_FOUND"


async def test_a_group_is_deleted_with_its_offsets_when_empty(groups: Groups) -> None:
    (member,) = await groups.stable()
    groups.commit(1, member_id=member, generation=1)
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        await wait(groups.coordinator.delete(GROUP))
    groups.leave(member)
    await wait(groups.coordinator.delete(GROUP))
    assert groups.offset() is None
    assert not groups.table.groups
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        await wait(groups.coordinator.delete(GROUP))


async def test_group_deletion_waits_for_commits_in_flight_and_deletes_them(
    groups: Groups,
) -> None:
    groups.log.held = True
    committed = groups.commit(1)
    deleted = asyncio.ensure_future(groups.coordinator.delete(GROUP))
    await asyncio.sleep(0)
    assert not deleted.done()
    groups.log.release()
    await asyncio.gather(committed, deleted)
    assert groups.offset() is None
    assert not groups.table.groups


async def test_offsets_of_deleted_topics_are_deleted(groups: Groups) -> None:
    old, new = b"o" * 16, b"n" * 16
    groups.commit(1, topic_id=old)
    groups.commit(1, topic="kept")
    groups.commit(1, topic="again", topic_id=new)
    await groups.coordinator.topics_deleted({"t": old, "again": old})
    found = [groups.offset(topic=each) for each in ("t", "kept", "again")]
    assert found == [None, 1, 1]


async def test_offset_of_earlier_topic_with_same_name_is_not_found(groups: Groups) -> None:
    groups.commit(1, topic_id=b"o" * 16)
    assert groups.table.offsets.find(GROUP, "t", 0, b"n" * 16) is None
    assert groups.table.offsets.find(GROUP, "t", 0, b"o" * 16) is not None
    assert groups.table.offsets.find(GROUP, "t", 0, ZERO_UUID) is not None


# -- expiring (KIP-211) ------------------------------------------------------------------------


async def test_a_simple_consumers_offset_expires_after_its_last_commit(groups: Groups) -> None:
    groups.commit(1)
    groups.time.pass_ms(RETENTION_MS - 1)
    await groups.coordinator.expire()
    assert groups.offset() == 1
    groups.time.pass_ms(1)
    await groups.coordinator.expire()
    assert groups.offset() is None
    assert not groups.table.groups


async def test_an_empty_groups_offsets_expire_from_when_it_became_empty(groups: Groups) -> None:
    (member,) = await groups.stable(protocols=READS_T, session_ms=1_800_000)
    groups.commit(1, member_id=member, generation=1)
    groups.time.pass_ms(1_700_000)
    groups.leave(member)
    groups.time.pass_ms(RETENTION_MS - 1)
    await groups.coordinator.expire()
    assert groups.offset() == 1
    groups.time.pass_ms(1)
    await groups.coordinator.expire()
    assert not groups.table.groups


async def test_stable_group_expires_only_offsets_of_unsubscribed_topics(groups: Groups) -> None:
    (member,) = await groups.stable(protocols=READS_T, session_ms=1_800_000)
    groups.commit(1, member_id=member, generation=1)
    groups.commit(1, member_id=member, generation=1, topic="left")
    for _ in range(RETENTION_MS // HOUR_MS):
        for _ in range(3):
            groups.time.pass_ms(HOUR_MS // 3)
            groups.heartbeat(member, 1)
    await groups.coordinator.expire()
    assert (groups.offset(), groups.offset(topic="left")) == (1, None)
    assert groups.state == "Stable"


async def test_retention_of_old_clients_is_respected(groups: Groups) -> None:
    groups.commit(1, retention_ms=1_000)
    groups.time.pass_ms(999)
    await groups.coordinator.expire()
    assert groups.offset() == 1
    groups.time.pass_ms(1)
    await groups.coordinator.expire()
    assert groups.offset() is None


async def test_refused_expiration_is_repeated_by_next_sweep(groups: Groups) -> None:
    groups.commit(1)
    groups.time.pass_ms(RETENTION_MS)
    groups.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await groups.coordinator.expire()
    assert groups.offset() == 1
    groups.log.refusal = None
    await groups.coordinator.expire()
    assert groups.offset() is None
