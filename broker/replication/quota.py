"""What replication may use of the network while replicas move (KIP-73); pure.

A broker has two quotas: one for what it sends to followers as a leader, one for what it fetches as
a follower. Each counts only the partitions that a topic names in its `...throttled.replicas`, and
holds up only replicas that are out of sync: one in sync is never slowed down, or it would leave the
set because of the throttle.

The serving side, for each partition of a follower's Fetch:

    if quota.is_throttled(topic, index) and follower not in isr and quota.exceeded(now):
        ...                                   # answer the partition without records
    quota.record(sent, now)                   # once per answer: the bytes of throttled partitions

The fetching side, likewise: a partition whose own replica is out of sync is left out of the request
while the quota is exceeded, and what comes in of throttled partitions is recorded.

Neither delays an answer: the follower asks again, and others on the connection go on. `now` is
monotonic time in seconds.
"""

from collections import deque
from collections.abc import Callable, Container

from barnabas.config.key import LONG_MAX
from barnabas.config.replication_keys import ReplicationKeys
from barnabas.config.topic import TopicConfig

_ALL = range(1 << 31)
"""Every partition number there is."""


class ByteRate:
    """Bytes per second over a number of windows of time, the running one included."""

    def __init__(self, windows: int, seconds: float) -> None:
        """`windows` are kept, each of `seconds`."""
        self._windows = windows
        self._seconds = seconds
        self._counts: deque[list[float]] = deque()
        self._total = 0

    def record(self, size: int, now: float) -> None:
        """`size` bytes went at the time `now`."""
        self._forget(now)
        if not self._counts or now - self._counts[-1][0] >= self._seconds:
            self._counts.append([now, 0])
        self._counts[-1][1] += size
        self._total += size

    def rate(self, now: float) -> float:
        """Over the time since the oldest window began, one whole window at least."""
        self._forget(now)
        if not self._counts:
            return 0.0
        return self._total / max(now - self._counts[0][0], self._seconds)

    def _forget(self, now: float) -> None:
        while self._counts and now - self._counts[0][0] >= self._windows * self._seconds:
            self._total -= int(self._counts.popleft()[1])


class ReplicationQuota:
    """One side's quota."""

    def __init__(
        self,
        broker_id: int,
        rate: ByteRate,
        limit: Callable[[], int],
        replicas: Callable[[str], tuple[str, ...]],
    ) -> None:
        """`limit` tells the bytes per second that hold now, `replicas` what a topic's
        `...throttled.replicas` says: `partition:broker` pairs, or `*` alone."""
        self._suffix = f":{broker_id}"
        self._rate = rate
        self._limit = limit
        self._replicas = replicas
        self._read: dict[str, tuple[tuple[str, ...], Container[int]]] = {}

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the replica on this broker counts, and is held up while it is out of sync."""
        replicas = self._replicas(topic)
        if not replicas:
            if self._read:
                self._read.pop(topic, None)
            return False
        known = self._read.get(topic)
        if known is None or known[0] is not replicas:
            known = self._read[topic] = (replicas, self._partitions(replicas))
        return partition in known[1]

    def exceeded(self, now: float) -> bool:
        """Whether more went of late than may."""
        limit = self._limit()
        return limit != LONG_MAX and self._rate.rate(now) > limit

    def record(self, size: int, now: float) -> None:
        """`size` bytes of throttled partitions went."""
        self._rate.record(size, now)

    def rate(self, now: float) -> float:
        """Bytes per second of throttled partitions: Kafka's byte-rate of the side."""
        return self._rate.rate(now)

    def _partitions(self, replicas: tuple[str, ...]) -> Container[int]:
        if replicas == ("*",):
            return _ALL
        own = (each for each in replicas if each.endswith(self._suffix))
        return frozenset(int(each.partition(":")[0]) for each in own)


class ReplicationQuotas:
    """Both quotas of a broker. Changed keys hold from the next question on."""

    def __init__(
        self,
        broker_id: int,
        config: Callable[[], ReplicationKeys],
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        """`config` and `topic_config` tell what holds now; the windows are those of the start."""
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
