"""The replication throttle: limits on replication traffic while replicas move (KIP-73); pure.

A broker has two quotas: one for the bytes it sends to followers as a leader, one for the bytes it
fetches as a follower. Each counts only the partitions that a topic names in its
`...throttled.replicas`, and throttles only replicas that are out of sync: an in-sync replica is
never slowed down, or it would leave the ISR because of the throttle.

The serving side, for each partition of a follower's Fetch:

    if quota.is_throttled(topic, index) and follower not in isr and quota.exceeded(now):
        ...                                   # answer the partition without records
    quota.record(sent, now)                   # once per answer: the bytes of throttled partitions

The fetching side leaves a partition whose own replica is out of sync out of the request while the
quota is exceeded, and records the received bytes of throttled partitions.

Neither side delays a response: the follower fetches again, and the other partitions of the
connection continue. `now` is monotonic time in seconds.
"""

from collections import deque
from collections.abc import Callable, Container

from barnabas.config.key import LONG_MAX
from barnabas.config.replication_keys import ReplicationKeys
from barnabas.config.topic import TopicConfig

_ALL = range(1 << 31)
"""All partition numbers."""


class ByteRate:
    """The rate in bytes per second over several time windows, the current one included."""

    def __init__(self, windows: int, seconds: float) -> None:
        """Keep `windows` windows of `seconds` each."""
        self._windows = windows
        self._seconds = seconds
        self._counts: deque[list[float]] = deque()
        self._total = 0

    def record(self, size: int, now: float) -> None:
        """Record `size` bytes at the time `now`."""
        self._expire(now)
        if not self._counts or now - self._counts[-1][0] >= self._seconds:
            self._counts.append([now, 0])
        self._counts[-1][1] += size
        self._total += size

    def rate(self, now: float) -> float:
        """Return the rate since the start of the oldest window, over one whole window at least."""
        self._expire(now)
        if not self._counts:
            return 0.0
        return self._total / max(now - self._counts[0][0], self._seconds)

    def _expire(self, now: float) -> None:
        while self._counts and now - self._counts[0][0] >= self._windows * self._seconds:
            self._total -= int(self._counts.popleft()[1])


class ReplicationQuota:
    """The quota of one side, leader or follower."""

    def __init__(
        self,
        broker_id: int,
        rate: ByteRate,
        limit: Callable[[], int],
        replicas: Callable[[str], tuple[str, ...]],
    ) -> None:
        """`limit` returns the current limit in bytes per second, `replicas` a topic's
        `...throttled.replicas`: `partition:broker` pairs, or `*` alone."""
        self._suffix = f":{broker_id}"
        self._rate = rate
        self._limit = limit
        self._replicas = replicas
        self._parsed: dict[str, tuple[tuple[str, ...], Container[int]]] = {}

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the quota counts this broker's replica, and throttles it while out of sync."""
        replicas = self._replicas(topic)
        if not replicas:
            if self._parsed:
                self._parsed.pop(topic, None)
            return False
        known = self._parsed.get(topic)
        if known is None or known[0] is not replicas:
            known = self._parsed[topic] = (replicas, self._partitions(replicas))
        return partition in known[1]

    def exceeded(self, now: float) -> bool:
        """Whether the recent rate is above the limit."""
        limit = self._limit()
        return limit != LONG_MAX and self._rate.rate(now) > limit

    def record(self, size: int, now: float) -> None:
        """Record `size` bytes of throttled partitions."""
        self._rate.record(size, now)

    def rate(self, now: float) -> float:
        """Return the bytes per second of throttled partitions: Kafka's byte-rate of the side."""
        return self._rate.rate(now)

    def _partitions(self, replicas: tuple[str, ...]) -> Container[int]:
        if replicas == ("*",):
            return _ALL
        own = (each for each in replicas if each.endswith(self._suffix))
        return frozenset(int(each.partition(":")[0]) for each in own)


class ReplicationQuotas:
    """Both quotas of a broker. Changed configurations apply to the next call."""

    def __init__(
        self,
        broker_id: int,
        config: Callable[[], ReplicationKeys],
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        """`config` and `topic_config` return current values; the windows are fixed at the start."""
        windows = config().replication_quota_window_num
        seconds = config().replication_quota_window_size_seconds
        self.leader = ReplicationQuota(
            broker_id,
            ByteRate(windows, seconds),
            lambda: config().leader_replication_throttled_rate,
            lambda topic: topic_config(topic).leader_replication_throttled_replicas,
        )
        self.follower = ReplicationQuota(
            broker_id,
            ByteRate(windows, seconds),
            lambda: config().follower_replication_throttled_rate,
            lambda topic: topic_config(topic).follower_replication_throttled_replicas,
        )
