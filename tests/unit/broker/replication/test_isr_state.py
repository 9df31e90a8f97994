"""The ISR and the high watermark: their rules, and a model that sees every single fetch."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.isr_state import (
    NEVER,
    Follower,
    IsrState,
    LastFetch,
    committed_end,
    effective_min_isr,
)

MAX_LAG = 30.0
OFFSETS = st.integers(0, 1000)
COUNTS = st.integers(1, 5)


@given(current=OFFSETS, end=OFFSETS, isr_size=COUNTS, min_isr=COUNTS)
def test_high_watermark_never_moves_back_nor_past_the_isr_nor_below_min_isr(
    current: int, end: int, isr_size: int, min_isr: int
) -> None:
    moved = committed_end(current, end, isr_size, min_isr)
    assert moved >= current
    if moved > current:
        assert isr_size >= min_isr
        assert moved == end


def test_isr_below_min_isr_commits_nothing() -> None:
    assert committed_end(5, 9, 1, 2) == 5
    assert committed_end(5, 7, 2, 2) == 7


def test_min_isr_is_limited_to_the_number_of_replicas() -> None:
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2


@dataclass
class EveryFetch:
    """Kafka's bookkeeping (`Replica.updateFetchState`), which sees every single fetch."""

    caught_up_at: float
    log_end: int = -1
    leader_end: int = -1
    fetched_at: float = NEVER

    def fetched(self, log_end: int, leader_end: int, now: float) -> None:
        if log_end >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif log_end >= self.leader_end:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_end, self.leader_end, self.fetched_at = log_end, leader_end, now


@dataclass
class IncrementalSession:
    """A follower in a session that names a partition only when it has changed."""

    follower: Follower
    at: LastFetch = field(default_factory=lambda: LastFetch(NEVER))
    unread: bool = True

    def fetched(self, log_end: int, leader_end: int, now: float) -> None:
        self.at.record(now, 1)
        if self.unread or log_end != self.follower.log_end:
            self.follower.update_fetch_state(log_end, 0, 1, leader_end, self.at)
        self.unread = log_end != leader_end


STEPS = st.lists(
    st.tuples(
        st.floats(0, 20, allow_nan=False),
        st.sampled_from(["append", "fetch", "new", "lose"]),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    max_size=40,
)


@given(in_sync=st.booleans(), steps=STEPS)
def test_incremental_session_gives_the_same_caught_up_times_as_full_requests(
    in_sync: bool, steps: list[tuple[float, str, float]]
) -> None:
    now, leader_end, position = 0.0, 0, 0
    every_fetch = EveryFetch(now if in_sync else NEVER)
    told = IncrementalSession(Follower(now if in_sync else NEVER))
    for passed, what, share in steps:
        now += passed
        if what == "append":
            leader_end += 1 + int(share * 3)
            told.unread = True
        else:
            if what == "new":
                # The session is lost, and another one begins.
                told.at, told.unread = LastFetch(NEVER), True
            if what == "lose":
                # A power loss: the follower's log is shorter than before.
                position = round(position * share)
            else:
                position += round((leader_end - position) * share)
            every_fetch.fetched(position, leader_end, now)
            told.fetched(position, leader_end, now)
        assert told.follower.caught_up_at == every_fetch.caught_up_at
        assert told.follower.is_caught_up(leader_end, now, MAX_LAG) == (
            every_fetch.log_end == leader_end or now - every_fetch.caught_up_at <= MAX_LAG
        )


class AllAlive:
    """A clock that stands still; every broker is alive."""

    def is_alive(self, replica: int) -> bool:  # noqa: ARG002
        return True

    def awaits(self, replica: int, follower: Follower, leader_end: int) -> bool:  # noqa: ARG002
        return follower.is_caught_up(leader_end, 0.0, MAX_LAG)


def led(
    isr: tuple[int, ...], replicas: tuple[int, ...] = (0, 1, 2), epoch_start: int = 0
) -> IsrState:
    found = IsrState(0, AllAlive())
    found.apply_decision(replicas, isr)
    found.begin_epoch(epoch_start, 0.0)
    return found


def fetched(
    members: IsrState, replica: int, log_end: int, leader_end: int, now: float, connection: int = 1
) -> None:
    members.followers[replica].update_fetch_state(
        log_end, 0, 1, leader_end, LastFetch(now, connection)
    )


@given(
    isr=st.sets(st.integers(1, 4)),
    proposed=st.none() | st.sets(st.integers(1, 4)),
    ends=st.dictionaries(st.integers(1, 4), st.integers(0, 20)),
    leader_end=st.integers(0, 20),
    now=st.floats(0, 100),
)
def test_committed_end_is_below_every_member_of_both_isrs(
    isr: set[int],
    proposed: set[int] | None,
    ends: dict[int, int],
    leader_end: int,
    now: float,
) -> None:
    members = led((0, *isr), (0, 1, 2, 3, 4))
    members.proposed = None if proposed is None else (0, *proposed)
    for replica, end in ends.items():
        fetched(members, replica, min(end, leader_end), leader_end, 0.0)
    end = members.maximal_isr_end(leader_end)
    assert end <= leader_end
    for replica in isr | (proposed or set()):
        assert end <= members.followers[replica].log_end
    gone = set(members.lagging(leader_end, now, MAX_LAG))
    assert gone <= isr
    for replica in gone:
        assert members.followers[replica].log_end < leader_end


def test_follower_that_never_fetches_lags_after_the_lag_time_and_not_before() -> None:
    members = led((0, 1, 2))
    fetched(members, 1, 5, 5, 40.0)
    assert list(members.lagging(5, 30.0, MAX_LAG)) == []
    assert list(members.lagging(5, 30.1, MAX_LAG)) == [2]


def test_follower_that_is_always_slightly_behind_stays() -> None:
    members = led((0, 1))
    at = LastFetch(NEVER)
    for second in range(100):
        at.record(float(second), 1)
        members.followers[1].update_fetch_state(10 * second, 0, 1, 10 * (second + 1), at)
    assert list(members.lagging(1000, 100.0, 2.0)) == []


def test_follower_that_repeats_the_same_fetch_falls_behind() -> None:
    members = led((0, 1))
    at = LastFetch(NEVER)
    for second in range(100):
        at.record(float(second), 1)
        members.followers[1].update_fetch_state(0, 0, 1, 10 * (second + 1), at)
    assert list(members.lagging(1000, 100.0, MAX_LAG)) == [1]


def test_follower_may_join_with_all_committed_records_and_the_epoch_start() -> None:
    members = led((0,), (0, 1), epoch_start=8)
    fetched(members, 1, 7, 10, 0.0)
    assert not members.may_join(1, 5), "it may have to truncate yet"
    fetched(members, 1, 8, 10, 0.0)
    assert not members.may_join(1, 9)
    assert members.may_join(1, 8)
    members.proposed = (0, 1)
    assert not members.may_join(1, 8)


def test_partition_that_left_its_session_is_not_covered_by_later_requests() -> None:
    members = led((0, 1))
    at = LastFetch(0.0, 1)
    members.followers[1].update_fetch_state(5, 0, 1, 5, at)
    members.followers[1].leave_session()
    at.record(90.0, 1)
    assert members.followers[1].caught_up_at == 0.0


def test_only_members_of_the_closed_connection_without_a_new_fetch_are_dropped() -> None:
    members = led((0, 1, 2))
    fetched(members, 1, 5, 5, 10.0, connection=7)
    fetched(members, 2, 5, 5, 10.0, connection=8)
    assert members.drop_connection(7, 10.0) == [1]
    fetched(members, 1, 5, 5, 10.2, connection=9)
    assert members.drop_connection(7, 10.0) == []


def test_disconnected_follower_outside_the_isr_is_not_awaited() -> None:
    members = led((0,), (0, 1))
    fetched(members, 1, 5, 5, 10.0, connection=7)
    assert members.maximal_isr_end(6) == 5
    assert members.drop_connection(7, 10.0) == []
    assert members.maximal_isr_end(6) == 6


def test_member_removed_by_the_controller_is_not_awaited() -> None:
    members = led((0, 1), (0, 1))
    fetched(members, 1, 5, 5, 10.0)
    assert members.maximal_isr_end(6) == 5
    members.apply_decision((0, 1), (0,))
    assert members.maximal_isr_end(6) == 6
    fetched(members, 1, 5, 5, 10.0)
    assert members.maximal_isr_end(6) == 5


def test_new_epoch_forgets_follower_positions() -> None:
    members = led((0, 1), (0, 1))
    fetched(members, 1, 5, 5, 0.0)
    members.begin_epoch(5, 1.0)
    assert members.maximal_isr_end(5) == -1
    assert list(members.lagging(5, 31.0, MAX_LAG)) == []
    assert list(members.lagging(5, 31.1, MAX_LAG)) == [1]
