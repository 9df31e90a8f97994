"""Offsets in transactions: who may commit them, when they count, and what keeps them."""

import asyncio

import pytest

from barnabas.coordinator.group.counts import OffsetCounts
from barnabas.coordinator.group.records import (
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    encode_record,
)
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.group_metadata import GroupMetadataValue
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, build_batch, iter_records
from tests.unit.coordinator.harness import (
    EPOCH,
    GROUP,
    PRODUCER,
    WALL_MS,
    Groups,
    code_of,
    subscription,
)
from tests.unit.coordinator.test_offsets import delete

RETENTION_MS = GroupSettings().offsets_retention_ms
OTHER = 10


@pytest.fixture
async def groups() -> Groups:
    return await Groups().load()


# -- when they count ---------------------------------------------------------------------------


async def test_a_pending_offset_counts_with_the_commit_marker(groups: Groups) -> None:
    groups.commit(1)
    answer = groups.commit_transactional(5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (groups.offset(), groups.is_pending()) == (1, True)
    groups.end()
    assert (groups.offset(), groups.is_pending()) == (5, False)


async def test_an_abort_marker_drops_pending_offsets(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.end(committed=False)
    assert (groups.offset(), groups.is_pending()) == (1, False)


async def test_a_transaction_ends_in_all_its_groups_and_in_no_other_producers(
    groups: Groups,
) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, group_id="h", topic="u")
    groups.commit_transactional(7, OTHER, group_id="i")
    groups.end()
    assert (groups.offset(), groups.offset("h", "u"), groups.offset("i")) == (5, 6, None)
    assert groups.is_pending("i")


async def test_the_last_offset_of_a_transaction_counts(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(3)
    groups.end()
    assert groups.offset() == 3


async def test_a_plain_commit_after_a_pending_one_stands(groups: Groups) -> None:
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


async def test_an_aborted_offset_takes_the_place_of_none(groups: Groups) -> None:
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


async def test_a_reload_brings_back_open_committed_and_aborted_transactions(
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


async def test_kafka_9307_a_load_that_was_interrupted_leaves_nothing_half_loaded(
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


async def test_kafka_8069_nothing_expires_with_the_load() -> None:
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
    assert not groups.shard.groups


# -- who may commit them (KIP-447) -------------------------------------------------------------


async def test_a_member_commits_in_its_generation(groups: Groups) -> None:
    (member,) = await groups.stable()
    groups.commit_transactional(5, member_id=member, generation=1)
    groups.end()
    assert groups.offset() == 5


async def test_members_are_held_to_their_generation(groups: Groups) -> None:
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


async def test_who_names_no_member_is_not_checked(groups: Groups) -> None:
    await groups.stable()
    groups.commit_transactional(5)
    groups.end()
    assert groups.offset() == 5


async def test_a_generation_of_no_group_is_refused(groups: Groups) -> None:
    code = code_of(lambda: groups.commit_transactional(1, member_id="m", generation=3))
    assert code == "ILLEGAL_GENERATION"
    assert not groups.shard.groups


async def test_a_member_commits_between_join_and_assignment(groups: Groups) -> None:
    joined = groups.join()
    groups.time.pass_ms(3_000)
    member = (await joined).member_id
    assert groups.state == "CompletingRebalance"
    groups.commit_transactional(5, member_id=member, generation=1)
    assert groups.is_pending()


async def test_a_transactional_commit_is_no_sign_of_life(groups: Groups) -> None:
    (member,) = await groups.stable(session_ms=10_000)
    groups.time.pass_ms(6_000)
    groups.commit_transactional(1, member_id=member, generation=1)
    groups.time.pass_ms(6_000)
    assert groups.state == "Empty"


async def test_metadata_has_a_limit(groups: Groups) -> None:
    answer = groups.commit_transactional(1, metadata="x" * 4097)
    code = answer.topics[0].partitions[0].error_code
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
async def test_what_the_log_refuses_is_not_pending(
    groups: Groups, fault: ErrorCode, told: str
) -> None:
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
    assert not groups.shard.groups


async def test_a_group_of_pending_offsets_alone_stays_until_they_are_decided(
    groups: Groups,
) -> None:
    groups.commit_transactional(5)
    groups.time.pass_ms(RETENTION_MS)
    await groups.coordinator.expire()
    assert groups.state == "Empty"
    groups.end(committed=False)
    await groups.coordinator.expire()
    assert not groups.shard.groups


async def test_a_group_is_deleted_with_its_pending_offsets(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="u")
    written = groups.log.record_count
    await groups.coordinator.delete(GROUP)
    assert groups.log.record_count == written + 3
    assert not groups.coordinator.has_any_pending(GROUP)
    groups.end()
    assert (groups.offset(), groups.offset(topic="u")) == (None, None)
    assert not groups.shard.groups
    await groups.load()
    assert not groups.shard.groups


async def test_an_offset_is_deleted_with_what_is_pending_for_it(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="u")
    assert delete(groups) == ErrorCode.NONE
    assert (groups.is_pending(), groups.is_pending(topic="u")) == (False, True)
    groups.end()
    assert (groups.offset(), groups.offset(topic="u")) == (None, 6)


async def test_what_members_read_keeps_its_pending_offset(groups: Groups) -> None:
    (member,) = await groups.stable(protocols=(("range", subscription("t")),))
    groups.commit_transactional(5, member_id=member, generation=1)
    assert delete(groups) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert groups.is_pending()


async def test_pending_offsets_of_deleted_topics_go(groups: Groups) -> None:
    groups.commit_transactional(5)
    groups.commit_transactional(6, topic="kept")
    await groups.coordinator.topics_deleted({"t": b"o" * 16})
    groups.end()
    assert (groups.offset(), groups.offset(topic="kept")) == (None, 6)


async def test_a_superseded_offset_is_pending_no_less(groups: Groups) -> None:
    """Whoever asks for stable offsets waits for every transaction that wrote one."""
    groups.commit_transactional(5)
    groups.commit(2)
    await groups.load()
    assert groups.is_pending()
    await groups.coordinator.delete(GROUP)
    assert not groups.coordinator.has_any_pending(GROUP)


async def test_the_count_of_offsets_leaves_pending_ones_out(groups: Groups) -> None:
    groups.commit_transactional(5)
    assert groups.coordinator.count_offsets() == 0
    groups.end()
    assert groups.coordinator.count_offsets() == 1


async def test_what_becomes_of_offsets_is_counted_over_reloads(groups: Groups) -> None:
    groups.commit(1)
    groups.commit_transactional(5, topic="u")
    groups.end()
    await groups.load()
    delete(groups)
    groups.time.pass_ms(RETENTION_MS)
    await groups.coordinator.expire()
    assert groups.counts == OffsetCounts(committed=2, expired=1, deleted=1)


# -- reading what is stable --------------------------------------------------------------------


async def test_a_stable_look_waits_for_commits_on_their_way(groups: Groups) -> None:
    """A member of the generation before may have been allowed to write what is not seen yet."""
    groups.commit(1)
    groups.log.held = True
    groups.commit_transactional(5)
    look = groups.coordinator.look_when_settled(GROUP, groups.is_pending)
    assert not look.done()
    assert groups.coordinator.look(GROUP, groups.is_pending) is False
    groups.log.release()
    assert await look is True


async def test_a_stable_look_at_what_rests_is_answered_at_once(groups: Groups) -> None:
    groups.commit_transactional(5)
    assert groups.coordinator.look_when_settled(GROUP, groups.is_pending) is True
