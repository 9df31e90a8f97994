"""Incremental fetch sessions (KIP-227): requests, answers and evictions."""

from itertools import count

import pytest

from barnabas.broker.replication.leader.fetch_session import (
    CONSUMER,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionCache,
    SessionOwner,
)
from barnabas.broker.replication.leader.follower_session import FollowerSession
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

V_NAMES, V_IDS = 12, 13


def cache(slots: int = 10, max_partitions: int = 100) -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(slots, lambda: next(ids), max_partitions=max_partitions)


def request(
    partitions: dict[int, int], *, session_id: int = 0, epoch: int = INITIAL_EPOCH,
    forget: list[int] | None = None, topic: str = "t",
) -> FetchRequest:  # fmt: skip
    """Return a request for one topic, with offsets by partition index."""
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
    """Return the session id and the partitions of the answer, given the records."""
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
    owner: SessionOwner = CONSUMER,
) -> int:
    session_id, _ = answer(sessions.open(request(partitions), V_NAMES, now_ms, owner))
    return session_id


def refused(sessions: FetchSessionCache, wanted: FetchRequest, version: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.open(wanted, version, 0)
    return caught.value.code


def test_full_request_is_answered_with_all_partitions_and_a_session() -> None:
    sessions = cache()
    session_id, told = answer(sessions.open(request({0: 1, 1: 1}), V_NAMES, 0))
    assert session_id > 0
    assert told == [0, 1]


def test_session_may_begin_without_partitions_and_ends_if_it_gets_none() -> None:
    sessions = cache()
    session_id = opened(sessions, {})
    assert session_id > 0
    sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    assert len(sessions) == 0


def test_request_with_the_final_epoch_has_no_session_and_closes_the_old_one() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    final = request({0: 1}, session_id=session_id, epoch=FINAL_EPOCH)
    assert answer(sessions.open(final, V_NAMES, 0)) == (0, [0])
    assert len(sessions) == 0


def test_incremental_answer_names_only_partitions_with_news() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1, 2: 1})
    quiet = sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    assert answer(quiet) == (session_id, [])
    read = sessions.open(request({}, session_id=session_id, epoch=2), V_NAMES, 0)
    assert answer(read, records={1: b"x"}) == (session_id, [1])
    moved = sessions.open(request({}, session_id=session_id, epoch=3), V_NAMES, 0)
    assert sorted(answer(moved, high_watermark=6)[1]) == [0, 1, 2]


def test_served_partition_moves_to_the_end_of_the_session() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1, 2: 1})
    read = sessions.open(request({}, session_id=session_id, epoch=1), V_NAMES, 0)
    answer(read, records={0: b"x"})
    after = sessions.open(request({}, session_id=session_id, epoch=2), V_NAMES, 0)
    assert [index for _, index in after.partitions] == [1, 2, 0]


def test_error_is_repeated_in_every_answer_and_its_end_is_answered() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    for epoch in (1, 2):
        context = sessions.open(request({}, session_id=session_id, epoch=epoch), V_NAMES, 0)
        assert answer(context, errors={0: ErrorCode.NOT_LEADER_OR_FOLLOWER})[1] == [0]
    over = sessions.open(request({}, session_id=session_id, epoch=3), V_NAMES, 0)
    assert answer(over)[1] == [0]


def test_session_keeps_changed_and_drops_forgotten_partitions() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1, 1: 1})
    wanted = request({1: 9, 2: 4}, session_id=session_id, epoch=1, forget=[0])
    context = sessions.open(wanted, V_NAMES, 0)
    offsets = {index: each.wanted.fetch_offset for (_, index), each in context.partitions.items()}
    assert offsets == {1: 9, 2: 4}


def test_session_that_forgets_all_partitions_ends() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    context = sessions.open(request({}, session_id=session_id, epoch=1, forget=[0]), V_NAMES, 0)
    assert answer(context) == (0, [])
    assert len(sessions) == 0


def test_wrong_session_ids_epochs_and_topic_keys_are_refused() -> None:
    sessions = cache()
    session_id = opened(sessions, {0: 1})
    unknown = request({}, session_id=99, epoch=1)
    assert refused(sessions, unknown, V_NAMES) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    ahead = request({}, session_id=session_id, epoch=2)
    assert refused(sessions, ahead, V_NAMES) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_id = request({}, session_id=session_id, epoch=1)
    assert refused(sessions, by_id, V_IDS) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_full_cache_keeps_sessions_in_use() -> None:
    sessions = cache(slots=1)
    opened(sessions, {0: 1, 1: 1})
    assert opened(sessions, {0: 1, 1: 1, 2: 1}, now_ms=EVICTION_MS) == 0


def test_stale_session_is_evicted() -> None:
    sessions = cache(slots=1)
    first = opened(sessions, {0: 1, 1: 1})
    second = opened(sessions, {0: 1}, now_ms=EVICTION_MS + 1)
    assert second not in (0, first)
    assert [session.id for session in sessions] == [second]


def test_old_smaller_session_is_evicted_for_a_larger_one() -> None:
    sessions = cache(slots=1)
    first = opened(sessions, {0: 1})
    late = EVICTION_MS + 1
    sessions.open(request({}, session_id=first, epoch=1), V_NAMES, late)
    assert opened(sessions, {0: 1}, now_ms=late) == 0
    assert opened(sessions, {0: 1, 1: 1}, now_ms=late) not in (0, first)


def test_consumer_session_is_evicted_for_a_follower_and_not_vice_versa() -> None:
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


def test_partitions_of_all_sessions_are_bounded() -> None:
    """A thousand sessions of 400,000 partitions each took 120 GB."""
    sessions = cache(max_partitions=10)
    first = opened(sessions, dict.fromkeys(range(6), 0))
    second = opened(sessions, dict.fromkeys(range(4), 0))
    assert NO_SESSION not in (first, second)
    assert opened(sessions, {0: 0}) == NO_SESSION
    added = request({9: 0}, session_id=second, epoch=1)
    assert refused(sessions, added, V_NAMES) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (1, 6)
    sessions.open(request({}, session_id=first, epoch=1, forget=[0, 1]), V_NAMES, 0)
    assert sessions.partitions == 4
    sessions.open(request({0: 0}, session_id=first, epoch=2), V_NAMES, 0)
    sessions.open(request({}, session_id=first, epoch=FINAL_EPOCH), V_NAMES, 0)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_stale_sessions_are_evicted_for_the_partitions_of_a_new_one() -> None:
    sessions = cache(max_partitions=10)
    assert opened(sessions, dict.fromkeys(range(10), 0)) != NO_SESSION
    assert opened(sessions, {0: 0}, EVICTION_MS + 1) != NO_SESSION
    assert (len(sessions), sessions.partitions) == (1, 1)


def test_follower_gets_the_partitions_of_consumers_and_is_never_refused() -> None:
    sessions = cache(max_partitions=10)
    assert opened(sessions, dict.fromkeys(range(10), 0)) != NO_SESSION
    assert opened(sessions, dict.fromkeys(range(12), 0), owner=FollowerSession(1)) != NO_SESSION
    assert (len(sessions), sessions.partitions) == (1, 12)


def test_cache_without_slots_creates_no_sessions() -> None:
    assert opened(cache(slots=0), {0: 1}) == 0
