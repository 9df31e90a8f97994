"""Offsets in transactions: the right to commit, visibility, deletion and expiration."""

import asyncio

import pytest

from barnabas.coordinator.group.counts import GroupCounts
from barnabas.coordinator.group.records import (
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    encode_record,
)
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.table import GroupTable
from barnabas.coordinator.soon import wait
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.group_metadata import GroupMetadataValue
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, build_batch, iter_records
from tests.support.coordinator.harness import (
    EPOCH,
    GROUP,
    PRODUCER,
    WALL_MS,
    Groups,
    code_of,
    delete,
    subscription,
)

RETENTION_MS = GroupSettings().offsets_retention_ms
OTHER = 10


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


# -- when they count ---------------------------------------------------------------------------


async def test_pending_offset_counts_once_commit_marker_is_replayed(groups: Groups) -> None:
    groups.commit(1)
    answer = groups.commit_transactional(5)
    assert answer[0] is ErrorCode.NONE
    assert (groups.offset(), groups.is_pending()) == (1, True)
    groups.end()
    assert (groups.offset(), groups.is_pending()) == (5, False)


async def test_an_abort_marker_drops_pending_offsets(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.end(committed=False)
    assert (groups.offset(), groups.is_pending()) == (1, False)


async def test_marker_ends_transaction_in_all_its_groups_but_no_other_producer(
    groups: Groups,
) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, group_id="h", topic="u")
    groups.commit_transactional(7, OTHER, group_id="i")
    groups.end()
    assert (groups.offset(), groups.offset("h", "u"), groups.offset("i")) == (5, 6, None)
    assert groups.is_pending("i")


async def test_last_offset_of_transaction_counts(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(3)
    groups.end()
    assert groups.offset() == 3


async def test_plain_commit_supersedes_earlier_pending_offset(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit(2)
    assert (groups.offset(), groups.is_pending()) == (2, True)
    groups.end()
    assert (groups.offset(), groups.is_pending()) == (2, False)


async def test_the_later_record_counts_though_its_transaction_ended_first(groups: Groups) -> None:
    groups.commit_transactional(5, PRODUCER)
    groups.commit_transactional(6, OTHER)
    groups.end(OTHER)
    assert (groups.offset(), groups.is_pending()) == (6, True)
    groups.end(PRODUCER)
    assert groups.offset() == 6


async def test_aborted_offset_replaces_no_committed_offset(groups: Groups) -> None:
    groups.commit_transactional(5, PRODUCER)
    groups.commit_transactional(6, OTHER)
    groups.end(OTHER, committed=False)
    groups.end(PRODUCER)
    assert groups.offset() == 5


async def test_kafka_17507_the_next_fetch_after_a_markers_answer_finds_its_offsets(
    groups: Groups,
) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.log.held = True
    answer = groups.end()
    assert not answer.done()
    assert (groups.offset(), groups.is_pending()) == (1, True)
    groups.log.release()
    await answer
    assert (groups.offset(), groups.is_pending()) == (5, False)


async def test_records_of_a_transaction_carry_its_producer_and_no_topic_id(groups: Groups) -> None:
    guard = object()
    groups.commit_transactional(5, metadata="here", guard=guard)
    header = read_header(groups.log.batches[-1])
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (PRODUCER, EPOCH)
    (record,) = iter_records(groups.log.batches[-1], 0, header)
    assert record.key is not None
    decoded = groups.shard.decode(record.key, record.value)
    assert decoded == (GROUP, "t", 0, (5, -1, "here", WALL_MS, -1, bytes(16)))
    assert groups.log.guards == [guard]


# -- after a reload ----------------------------------------------------------------------------


async def test_reload_restores_open_committed_and_aborted_transactions(
    groups: Groups,
) -> None:
    groups.commit_transactional(5, PRODUCER)
    groups.commit_transactional(6, OTHER, group_id="h")
    groups.commit_transactional(7, 11, group_id="i")
    groups.end(OTHER)
    groups.end(11, committed=False)
    await groups.load()
    assert [groups.offset(each) for each in (GROUP, "h", "i")] == [None, 6, None]
    assert [groups.is_pending(each) for each in (GROUP, "h", "i")] == [True, False, False]
    groups.end(PRODUCER)
    assert groups.offset() == 5


async def test_kafka_9307_interrupted_load_leaves_no_partial_state(
    groups: Groups,
) -> None:
    for offset in range(20):
        groups.commit_transactional(offset)
    groups.end()
    groups.runtime.elected(0, groups.log)
    for _ in range(5):
        await asyncio.sleep(0)
    assert groups.runtime.loading
    groups.runtime.resigned(0)
    assert code_of(lambda: groups.commit(1)) == "NOT_COORDINATOR"
    await groups.load()
    assert (groups.offset(), groups.is_pending()) == (19, False)


async def test_kafka_8069_load_expires_no_offset() -> None:
    """Records of old brokers: a group without the time of its state, and an offset with the
    expiry that a client brought. Both count from the commit, not from the beginning of time."""
    groups = Groups()
    empty = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol=None, leader=None, members=[]
    )
    records = [
        GroupRecord(GROUP, empty),
        OffsetRecord(GROUP, "t", 0, OffsetAndMetadata(1, -1, "", WALL_MS - 1)),
        OffsetRecord(GROUP, "u", 0, OffsetAndMetadata(2, -1, "", WALL_MS - 1, WALL_MS + 1)),
    ]
    groups.log.append(
        build_batch([Record(i, WALL_MS, *encode_record(each)) for i, each in enumerate(records)]),
        WALL_MS,
    )
    await groups.load()
    assert groups.group.state_timestamp_ms == -1
    await groups.coordinator.expire()
    assert (groups.offset(), groups.offset(topic="u")) == (1, 2)
    groups.time.pass_ms(RETENTION_MS - 1)
    await groups.coordinator.expire()
    assert not groups.table.groups


# -- who may commit them (KIP-447) -------------------------------------------------------------


async def test_a_member_commits_in_its_generation(groups: Groups) -> None:
    (member,) = await groups.stable()
    groups.commit_transactional(5, member_id=member, generation=1)
    groups.end()
    assert groups.offset() == 5


async def test_transactional_commit_with_wrong_generation_is_refused(groups: Groups) -> None:
    (member,) = await groups.stable(instance="i")

    def code(**options: object) -> str:
        return code_of(lambda: groups.commit_transactional(1, **options))

    assert code(member_id="x", generation=1) == "UNKNOWN_MEMBER_ID"
    assert code(member_id=member, generation=0) == "ILLEGAL_GENERATION"
    assert code(member_id=member, generation=2) == "ILLEGAL_GENERATION"
    assert code(member_id=member) == "ILLEGAL_GENERATION"
    assert code(generation=1) == "UNKNOWN_MEMBER_ID"
    assert code(member_id="x", generation=1, instance="i") == "FENCED_INSTANCE_ID"
    assert code(instance="j") == "UNKNOWN_MEMBER_ID"
    assert groups.log.open_transactions == {}


async def test_transactional_commit_without_member_is_not_checked(groups: Groups) -> None:
    await groups.stable()
    groups.commit_transactional(5)
    groups.end()
    assert groups.offset() == 5


async def test_commit_with_generation_to_unknown_group_is_refused(groups: Groups) -> None:
    code = code_of(lambda: groups.commit_transactional(1, member_id="m", generation=3))
    assert code == "GROUP_ID_NOT_FOUND"
    assert not groups.table.groups


async def test_a_member_commits_between_join_and_assignment(groups: Groups) -> None:
    joined = groups.join()
    groups.time.pass_ms(3_000)
    member = (await joined).member_id
    assert groups.state == "CompletingRebalance"
    groups.commit_transactional(5, member_id=member, generation=1)
    assert groups.is_pending()


async def test_transactional_commit_does_not_extend_session(groups: Groups) -> None:
    (member,) = await groups.stable(session_ms=10_000)
    groups.time.pass_ms(6_000)
    groups.commit_transactional(1, member_id=member, generation=1)
    groups.time.pass_ms(6_000)
    assert groups.state == "Empty"


async def test_oversized_offset_metadata_is_refused(groups: Groups) -> None:
    answer = groups.commit_transactional(1, metadata="x" * 4097)
    (code,) = answer
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not groups.is_pending()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, "INVALID_TXN_STATE"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
async def test_refused_commit_is_not_pending(groups: Groups, fault: ErrorCode, told: str) -> None:
    groups.log.refusal = KafkaError(fault)
    assert code_of(lambda: groups.commit_transactional(1)) == told
    groups.log.refusal = None
    assert not groups.is_pending()


# -- what keeps them, and what does not --------------------------------------------------------


async def test_an_offset_with_a_pending_one_does_not_expire(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.time.pass_ms(RETENTION_MS)
    await groups.coordinator.expire()
    assert (groups.offset(), groups.is_pending()) == (1, True)
    groups.end(committed=False)
    await groups.coordinator.expire()
    assert groups.offset() is None
    assert not groups.table.groups


async def test_group_with_only_pending_offsets_is_kept_until_their_transactions_end(
    groups: Groups,
) -> None:
    groups.commit_transactional(5)
    groups.time.pass_ms(RETENTION_MS)
    await groups.coordinator.expire()
    assert groups.state == "Empty"
    groups.end(committed=False)
    await groups.coordinator.expire()
    assert not groups.table.groups


async def test_a_group_is_deleted_with_its_pending_offsets(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="u")
    written = groups.log.record_count
    await wait(groups.coordinator.delete(GROUP))
    assert groups.log.record_count == written + 3
    assert GROUP not in groups.table.offsets.pending
    groups.end()
    assert (groups.offset(), groups.offset(topic="u")) == (None, None)
    assert not groups.table.groups
    await groups.load()
    assert not groups.table.groups


async def test_offset_is_deleted_with_its_pending_offsets(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="u")
    assert delete(groups) == ErrorCode.NONE
    assert (groups.is_pending(), groups.is_pending(topic="u")) == (False, True)
    groups.end()
    assert (groups.offset(), groups.offset(topic="u")) == (None, 6)


async def test_pending_offset_of_subscribed_topic_is_not_deleted(groups: Groups) -> None:
    (member,) = await groups.stable(protocols=(("range", subscription("t")),))
    groups.commit_transactional(5, member_id=member, generation=1)
    assert delete(groups) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert groups.is_pending()


async def test_pending_offsets_of_deleted_topics_are_deleted(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="kept")
    await groups.coordinator.topics_deleted({"t": b"o" * 16})
    groups.end()
    assert (groups.offset(), groups.offset(topic="kept")) == (None, 6)


async def test_superseded_offset_remains_pending(groups: Groups) -> None:
    """A read of stable offsets waits for every transaction that wrote one."""
    groups.commit_transactional(5)
    groups.commit(2)
    await groups.load()
    assert groups.is_pending()
    await wait(groups.coordinator.delete(GROUP))
    assert GROUP not in groups.table.offsets.pending


async def test_count_of_offsets_excludes_pending_ones(groups: Groups) -> None:
    groups.commit_transactional(5)
    assert groups.coordinator.count_offsets() == 0
    groups.end()
    assert groups.coordinator.count_offsets() == 1


async def test_counts_of_offsets_survive_reloads(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5, topic="u")
    groups.end()
    await groups.load()
    delete(groups)
    groups.time.pass_ms(RETENTION_MS)
    await groups.coordinator.expire()
    assert groups.counts == GroupCounts(committed=2, expired=1, deleted=1)


# -- reading what is stable --------------------------------------------------------------------


def is_pending(table: GroupTable) -> bool:
    return table.offsets.pending.has(GROUP, "t", 0)


async def test_stable_read_waits_for_commits_in_flight(groups: Groups) -> None:
    """A member of the previous generation may have been allowed to write an offset that is not
    visible yet."""
    groups.commit(1)
    groups.log.held = True
    groups.commit_transactional(5)
    look = groups.coordinator.look_when_committed(GROUP, is_pending)
    assert not look.done()
    assert groups.coordinator.look(GROUP, is_pending) is False
    groups.log.release()
    assert await look is True


async def test_stable_read_without_commits_in_flight_is_answered_at_once(groups: Groups) -> None:
    groups.commit_transactional(5)
    assert groups.coordinator.look_when_committed(GROUP, is_pending) is True
