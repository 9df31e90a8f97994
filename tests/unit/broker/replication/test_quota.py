"""Replication quotas: throttled partitions, the measured rate, and the time above the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.quota import ByteRate, ReplicationQuotas
from barnabas.config.broker import BrokerConfig
from barnabas.config.replication_keys import ReplicationKeys
from barnabas.config.topic import TopicConfig


class Brokers:
    """Configurations that tests change while quotas read them."""

    def __init__(self) -> None:
        self.config: ReplicationKeys = BrokerConfig()
        self.topics: dict[str, TopicConfig] = {}

    def quotas(self, broker_id: int = 1) -> ReplicationQuotas:
        return ReplicationQuotas(
            broker_id, lambda: self.config, lambda name: self.topics.get(name, TopicConfig())
        )

    def limit(self, **rates: int) -> None:
        self.config = self.config.replace(**rates)

    def throttle(self, topic: str, *, leaders: str = "", followers: str = "") -> None:
        texts = {
            "leader.replication.throttled.replicas": leaders,
            "follower.replication.throttled.replicas": followers,
        }
        given = {key: text for key, text in texts.items() if text}
        self.topics[topic] = TopicConfig(**TopicConfig.parse(given))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_only_listed_replicas_of_this_broker_are_throttled(brokers: Brokers) -> None:
    brokers.throttle("t", leaders="0:1,1:2,2:11,3:1")
    leader = brokers.quotas(1).leader
    assert [leader.is_throttled("t", index) for index in range(4)] == [True, False, False, True]
    assert not leader.is_throttled("other", 0)


def test_star_lists_every_partition(brokers: Brokers) -> None:
    brokers.throttle("t", followers="*")
    follower = brokers.quotas().follower
    assert follower.is_throttled("t", 0)
    assert follower.is_throttled("t", 12_345)


def test_leader_and_follower_quotas_are_independent(brokers: Brokers) -> None:
    brokers.limit(leader_replication_throttled_rate=100)
    brokers.throttle("t", leaders="0:1")
    quotas = brokers.quotas()
    assert not quotas.follower.is_throttled("t", 0)
    quotas.leader.record(1000, 0)
    quotas.follower.record(1000, 0)
    assert quotas.leader.exceeded(1)
    assert not quotas.follower.exceeded(1)


def test_changed_lists_and_limits_apply_at_once(brokers: Brokers) -> None:
    quotas = brokers.quotas()
    brokers.throttle("t", leaders="0:1")
    assert quotas.leader.is_throttled("t", 0)
    brokers.throttle("t", leaders="1:1")
    assert not quotas.leader.is_throttled("t", 0)
    assert quotas.leader.is_throttled("t", 1)
    brokers.throttle("t")
    assert not quotas.leader.is_throttled("t", 1)
    quotas.leader.record(1000, 0)
    assert not quotas.leader.exceeded(0)
    brokers.limit(leader_replication_throttled_rate=1)
    assert quotas.leader.exceeded(0)


def test_burst_exceeds_the_quota_until_the_rate_is_down(brokers: Brokers) -> None:
    brokers.limit(follower_replication_throttled_rate=1000)
    follower = brokers.quotas().follower
    follower.record(5000, 10.0)
    assert follower.exceeded(10.5)
    assert follower.exceeded(14.9)
    assert not follower.exceeded(15.0)


def test_rate_at_the_limit_is_allowed_and_zero_stops_all(brokers: Brokers) -> None:
    brokers.limit(leader_replication_throttled_rate=1000, follower_replication_throttled_rate=0)
    quotas = brokers.quotas()
    assert not quotas.follower.exceeded(0)
    quotas.leader.record(1000, 0)
    quotas.follower.record(1, 0)
    assert not quotas.leader.exceeded(0.1)
    assert quotas.follower.exceeded(0.1)


def test_bytes_older_than_all_windows_are_dropped() -> None:
    rate = ByteRate(windows=3, seconds=2)
    rate.record(600, 0)
    assert rate.rate(5.9) == pytest.approx(600 / 5.9)
    assert rate.rate(6.0) == 0
    rate.record(200, 100)
    assert rate.rate(100.5) == 100


EVENTS = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 10_000)), max_size=60)


@given(events=EVENTS, windows=st.integers(1, 12), seconds=st.sampled_from([0.5, 1, 2]))
def test_rate_covers_the_kept_windows(
    events: list[tuple[float, int]], windows: int, seconds: float
) -> None:
    """Compare with the list of all records: none of the last `windows - 1` windows is missing, and
    none older than `windows` windows counts."""
    rate, now, history = ByteRate(windows, seconds), 0.0, []
    for pause, size in events:
        now += pause
        rate.record(size, now)
        history.append((now, size))
        seen = rate.rate(now)
        span = windows * seconds
        at_most = sum(size for at, size in history if now - at < span)
        recent = sum(size for at, size in history if now - at < span - seconds)
        assert seen <= at_most / seconds + 1e-6
        assert seen >= recent / span - 1e-6


@given(limit=st.integers(1, 5000), size=st.integers(1, 2000), seconds=st.integers(20, 60))
def test_sender_that_obeys_the_quota_keeps_to_the_limit(
    limit: int, size: int, seconds: int
) -> None:
    """Send whenever the quota allows it, ten times a second, in pieces of `size`."""
    brokers = Brokers()
    brokers.limit(leader_replication_throttled_rate=limit)
    quota, sent = brokers.quotas().leader, 0
    for tenth in range(seconds * 10):
        now = tenth / 10
        if not quota.exceeded(now):
            quota.record(size, now)
            sent += size
    windows = 11
    pieces_over = size * (1 + seconds // (windows - 1))
    assert sent <= limit * (seconds + 1) * windows / (windows - 1) + pieces_over
    if size <= limit:
        assert sent >= 0.8 * min(limit, size * 10) * (seconds - windows)
