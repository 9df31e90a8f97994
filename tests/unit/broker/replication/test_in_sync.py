"""Who is in sync: the judgement, against one that hears of every fetch; and what it never does."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.in_sync import NEVER, Attendance, Follower, InSyncSet

MAX_LAG = 30.0


@dataclass
class Eager:
    """Kafka's bookkeeping (`Replica.updateFetchState`), told of every single fetch."""

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
class Told:
    """A follower in a session that names a partition only where something has changed."""

    follower: Follower
    at: Attendance = field(default_factory=lambda: Attendance(NEVER))
    unread: bool = True

    def fetched(self, log_end: int, leader_end: int, now: float) -> None:
        self.at.asked(now, 1)
        if self.unread or log_end != self.follower.log_end:
            self.follower.fetched(log_end, 0, 1, leader_end, self.at)
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
def test_a_session_that_tells_only_changes_is_judged_as_one_that_tells_everything(
    in_sync: bool, steps: list[tuple[float, str, float]]
) -> None:
    now, leader_end, position = 0.0, 0, 0
    eager = Eager(now if in_sync else NEVER)
    told = Told(Follower(now if in_sync else NEVER))
    for passed, what, share in steps:
        now += passed
        if what == "append":
            leader_end += 1 + int(share * 3)
            told.unread = True
        else:
            if what == "new":
                # The session is lost, and another one begins.
                told.at, told.unread = Attendance(NEVER), True
            if what == "lose":
                # A machine without power: the follower's log is shorter than it was.
                position = round(position * share)
            else:
                position += round((leader_end - position) * share)
            eager.fetched(position, leader_end, now)
            told.fetched(position, leader_end, now)
        assert told.follower.caught_up_at == eager.caught_up_at
        assert told.follower.is_caught_up(leader_end, now, MAX_LAG) == (
            eager.log_end == leader_end or now - eager.caught_up_at <= MAX_LAG
        )


class Shared:
    """A clock that stands, and everybody alive."""

    def __init__(self) -> None:
        self.time = 0.0
        self.invited: list[object] = []

    def now(self) -> float:
        return self.time

    def awaits(self, replica: int, follower: Follower, leader_end: int) -> bool:  # noqa: ARG002
        return follower.is_caught_up(leader_end, self.time, MAX_LAG)

    def invite(self, partition: object) -> None:
        self.invited.append(partition)


def led(
    isr: tuple[int, ...], replicas: tuple[int, ...] = (0, 1, 2), epoch_start: int = 0
) -> InSyncSet:
    found = InSyncSet(0, Shared())
    found.decided(replicas, isr)
    found.begin(epoch_start, 0.0)
    return found


def fetched(
    members: InSyncSet, replica: int, log_end: int, leader_end: int, now: float, connection: int = 1
) -> None:
    members.followers[replica].fetched(log_end, 0, 1, leader_end, Attendance(now, connection))


@given(
    isr=st.sets(st.integers(1, 4)),
    proposed=st.none() | st.sets(st.integers(1, 4)),
    ends=st.dictionaries(st.integers(1, 4), st.integers(0, 20)),
    leader_end=st.integers(0, 20),
    now=st.floats(0, 100),
)
def test_what_is_committed_both_the_old_and_the_new_set_have(
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
    end = members.end(leader_end)
    assert end <= leader_end
    for replica in isr | (proposed or set()):
        assert end <= members.followers[replica].log_end
    gone = set(members.lagging(leader_end, now, MAX_LAG))
    assert gone <= isr
    for replica in gone:
        assert members.followers[replica].log_end < leader_end


def test_a_follower_that_never_asks_leaves_after_the_lag_time_and_not_before() -> None:
    members = led((0, 1, 2))
    fetched(members, 1, 5, 5, 40.0)
    assert list(members.lagging(5, 30.0, MAX_LAG)) == []
    assert list(members.lagging(5, 30.1, MAX_LAG)) == [2]


def test_a_follower_that_always_is_a_little_behind_stays() -> None:
    members = led((0, 1))
    at = Attendance(NEVER)
    for second in range(100):
        at.asked(float(second), 1)
        members.followers[1].fetched(10 * second, 0, 1, 10 * (second + 1), at)
    assert list(members.lagging(1000, 100.0, 2.0)) == []


def test_a_follower_that_asks_again_and_again_for_the_same_falls_behind() -> None:
    members = led((0, 1))
    at = Attendance(NEVER)
    for second in range(100):
        at.asked(float(second), 1)
        members.followers[1].fetched(0, 0, 1, 10 * (second + 1), at)
    assert list(members.lagging(1000, 100.0, MAX_LAG)) == [1]


def test_who_comes_back_has_what_is_committed_and_the_beginning_of_the_epoch() -> None:
    members = led((0,), (0, 1), epoch_start=8)
    fetched(members, 1, 7, 10, 0.0)
    assert not members.may_join(1, 5), "it may have to truncate yet"
    fetched(members, 1, 8, 10, 0.0)
    assert not members.may_join(1, 9)
    assert members.may_join(1, 8)
    members.proposed = (0, 1)
    assert not members.may_join(1, 8)


def test_a_partition_that_left_its_session_is_not_there_because_the_session_is() -> None:
    members = led((0, 1))
    at = Attendance(0.0, 1)
    members.followers[1].fetched(5, 0, 1, 5, at)
    members.followers[1].left()
    at.asked(90.0, 1)
    assert members.followers[1].caught_up_at == 0.0


def test_only_who_used_the_connection_and_did_not_come_back_is_cut_off() -> None:
    members = led((0, 1, 2))
    fetched(members, 1, 5, 5, 10.0, connection=7)
    fetched(members, 2, 5, 5, 10.0, connection=8)
    assert members.cut_off(7, 10.0) == [1]
    fetched(members, 1, 5, 5, 10.2, connection=9)
    assert members.cut_off(7, 10.0) == []


def test_nobody_waits_for_a_follower_that_was_about_to_join_and_is_gone() -> None:
    members = led((0,), (0, 1))
    fetched(members, 1, 5, 5, 10.0, connection=7)
    assert members.end(6) == 5
    assert members.cut_off(7, 10.0) == []
    assert members.end(6) == 6


def test_nobody_waits_for_a_member_that_the_controller_has_left_out() -> None:
    members = led((0, 1), (0, 1))
    fetched(members, 1, 5, 5, 10.0)
    assert members.end(6) == 5
    members.decided((0, 1), (0,))
    assert members.end(6) == 6
    fetched(members, 1, 5, 5, 10.0)
    assert members.end(6) == 5


def test_a_new_epoch_forgets_where_followers_were() -> None:
    members = led((0, 1), (0, 1))
    fetched(members, 1, 5, 5, 0.0)
    members.begin(5, 1.0)
    assert members.end(5) == -1
    assert list(members.lagging(5, 31.0, MAX_LAG)) == []
    assert list(members.lagging(5, 31.1, MAX_LAG)) == [1]
