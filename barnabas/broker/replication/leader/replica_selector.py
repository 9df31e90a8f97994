"""The choice of the replica that a consumer reads from: a follower in its rack (KIP-392)."""

from collections.abc import Callable

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.config.replication_keys import RACK_AWARE_SELECTOR


class ReplicaSelector:
    """Kafka's replica selector; the leader asks it for each partition of a consumer's Fetch."""

    def __init__(
        self, broker_id: int, cache: MetadataCache, selector: Callable[[], str | None]
    ) -> None:
        """`selector` returns `replica.selector.class`."""
        self._broker_id = broker_id
        self._cache = cache
        self._selector = selector

    def preferred(self, partition: Partition, offset: int, rack: str, listener: str) -> int | None:
        """Return a follower in the consumer's rack that has `offset`; None if the leader serves.

        The leader serves if it is in that rack itself, or if no follower there qualifies. Only
        members of the ISR qualify: another follower could fall further and further behind,
        and the consumer with it. Among several the highest log end wins, then the latest caught-up
        time.
        """
        if self._selector() != RACK_AWARE_SELECTOR:
            return None
        near = {
            node.id
            for node in self._cache.brokers.values()
            if node.rack == rack and listener in node.endpoints
        }
        if self._broker_id in near:
            return None
        state = partition.isr_state
        able = [
            (follower.log_end, follower.caught_up_at, replica)
            for replica, follower in state.followers.items()
            if replica in near
            and replica in state.isr
            and 0 <= follower.log_start <= offset <= follower.log_end
        ]
        return max(able)[2] if able else None
