"""Incremental fetch sessions (KIP-227): what is asked, what is told, who is evicted."""

from itertools import count

import pytest

from barnabas.broker.replication.fetch_session import (
    CONSUMER,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchSessionCache,
    Owner,
)
from barnabas.broker.replication.follower_session import FollowerSession
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

V_NAMES, V_IDS = 12, 13


def cache(slots: int = 10) -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(slots, lambda: next(ids))


def request(
    partitions: dict[int, int], *, session_id: int = 0, epoch: int = INITIAL_EPOCH,
    forget: list[int] | None = None, topic: str = "t",
) -> FetchRequest:  # fmt: skip
    """A request for offsets by partition index of one topic."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in partitions.items()
    ]
    forgotten = [ForgottenTopic(topic=topic, partitions=forget)] if forget else []
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=forgotten,
    )  # fmt: skip


def answer(
    context: FetchContext, *, records: dict[int, bytes] | None = None, high_watermark: int = 5,
    errors: dict[int, ErrorCode] | None = None,
) -> tuple[int, list[int]]:  # fmt: skip
    """Session id and partitions of the answer when partitions have these records."""
    session_id, answers = context.close(
        [
            (
                fetched,
                PartitionData(
                    partition_index=fetched.wanted.partition,
                    error_code=(errors or {}).get(fetched.wanted.partition, ErrorCode.NONE),
                    high_watermark=high_watermark,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=(records or {}).get(fetched.wanted.partition, b""),
                ),
            )
            for fetched in context.partitions.values()
        ]
    )
    return session_id, [data.partition_index for _, data in answers]


def opened(
    sessions: FetchSessionCache,
    partitions: dict[int, int],
    now_ms: int = 0,
    owner: Owner = CONSUMER,
) -> int:
    session_id, _ = answer(sessions.open(request(partitions), V_NAMES, now_ms, owner))
    return session_id


def refused(sessions: FetchSessionCache, wanted: FetchRequest, version: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.open(wanted, version, 0)
    return caught.value.code


def test_a_full_request_is_answered_with_all_partitions_and_a_session() -> None:
    sessions = cache()
    session_id, told = answer(sessions.open(request({0: 1, 1: 1}), V_NAMES, 0))
    assert session_id > 0
    assert told == [0, 1]


def test_a_session_may_begin_without_partitions_and_ends_where_it_gets_none() -> None:
    sessions = cache()
    session_id = opened(sessions, {})
    assert session_id > 0
    sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    assert len(sessions) == 0


def test_a_request_with_the_final_epoch_has_no_session_and_closes_the_old_one() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    final = request({0: 1}, session_id=session_id, epoch=FINAL_EPOCH)
    assert answer(sessions.open(final, V_NAMES, 0)) == (0, [0])
    assert len(sessions) == 0


def test_an_incremental_answer_names_only_partitions_with_news() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1, 2: 1})
    quiet = sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    assert answer(quiet) == (session_id, [])
    read = sessions.open(request({}, session_id=session_id, epoch=2), V_NAMES, 0)
    assert answer(read, records={1: b"x"}) == (session_id, [1])
    moved = sessions.open(request({}, session_id=session_id, epoch=3), V_NAMES, 0)
    assert sorted(answer(moved, high_watermark=6)[1]) == [0, 1, 2]


def test_a_partition_that_was_served_goes_to_the_end() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1, 2: 1})
    read = sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    answer(read, records={0: b"x"})
    after = sessions.open(request({}, session_id=session_id, epoch=2), V_NAMES, 0)
    assert [index for _, index in after.partitions] == [1, 2, 0]


def test_an_error_is_told_in_every_answer_and_its_end_too() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    for epoch in (1, 2):
        context = sessions.open(request({}, session_id=session_id, epoch=epoch), V_NAMES, 0)
        assert answer(context, errors={0: ErrorCode.NOT_LEADER_OR_FOLLOWER})[1] == [0]
    over = sessions.open(request({}, session_id=session_id, epoch=3), V_NAMES, 0)
    assert answer(over)[1] == [0]


def test_changes_and_forgotten_partitions_are_remembered() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1})
    wanted = request({1: 9, 2: 4}, session_id=session_id, epoch=1, forget=[0])
    context = sessions.open(wanted, V_NAMES, 0)
    offsets = {index: each.wanted.fetch_offset for (_, index), each in context.partitions.items()}
    assert offsets == {1: 9, 2: 4}


def test_a_session_that_forgets_everything_ends() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    context = sessions.open(request({}, session_id=session_id, epoch=1, forget=[0]), V_NAMES, 0)
    assert answer(context) == (0, [])
    assert len(sessions) == 0


def test_wrong_ids_epochs_and_kinds_are_refused() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    unknown = request({}, session_id=99, epoch=1)
    assert refused(sessions, unknown, V_NAMES) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    ahead = request({}, session_id=session_id, epoch=2)
    assert refused(sessions, ahead, V_NAMES) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_id = request({}, session_id=session_id, epoch=1)
    assert refused(sessions, by_id, V_IDS) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_keeps_its_sessions_while_they_are_used() -> None:
    sessions = cache(slots=1)
    opened(sessions, {0: 1, 1: 1})
    assert opened(sessions, {0: 1, 1: 1, 2: 1}, now_ms=EVICTION_MS) == 0


def test_a_stale_session_makes_room() -> None:
    sessions = cache(slots=1)
    first = opened(sessions, {0: 1, 1: 1})
    second = opened(sessions, {0: 1}, now_ms=EVICTION_MS + 1)
    assert second not in (0, first)
    assert [session.id for session in sessions] == [second]


def test_an_old_smaller_session_makes_room_for_a_larger_one() -> None:
    sessions = cache(slots=1)
    first = opened(sessions, {0: 1})
    late = EVICTION_MS + 1
    sessions.open(request({}, session_id=first, epoch=1), V_NAMES, late)
    assert opened(sessions, {0: 1}, now_ms=late) == 0
    assert opened(sessions, {0: 1, 1: 1}, now_ms=late) not in (0, first)


def test_a_consumer_makes_room_for_a_follower_and_no_follower_for_a_consumer() -> None:
    sessions = cache(slots=1)
    opened(sessions, {0: 1, 1: 1, 2: 1})
    follower = opened(sessions, {0: 1}, owner=FollowerSession(1))
    assert follower != 0
    assert opened(sessions, {0: 1, 1: 1}) == 0
    assert opened(sessions, {0: 1, 1: 1}, owner=FollowerSession(2)) == 0
    late = EVICTION_MS + 1
    sessions.open(
        request({}, session_id=follower, epoch=1), V_NAMES, late, owner=FollowerSession(1)
    )
    assert opened(sessions, {0: 1, 1: 1}, late) == 0
    assert opened(sessions, {0: 1, 1: 1}, late, FollowerSession(2)) != 0


def test_without_slots_there_are_no_sessions() -> None:
    assert opened(cache(slots=0), {0: 1}) == 0
