"""Which replica a consumer should read from: one in its rack, where there is one (KIP-392)."""

from collections.abc import Callable

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.config.replication_keys import RACK_AWARE_SELECTOR


class ReplicaSelector:
    """Asked by the leader for each partition of a consumer's Fetch."""

    def __init__(
        self, broker_id: int, cache: MetadataCache, selector: Callable[[], str | None]
    ) -> None:
        """`selector` tells `replica.selector.class`."""
        self._broker_id = broker_id
        self._cache = cache
        self._selector = selector

    def preferred(self, partition: Partition, offset: int, rack: str, listener: str) -> int | None:
        """A follower in the consumer's rack that has `offset`, if not the leader itself is there.

        Only from the in-sync set: another one may fall behind more and more, and the consumer with
        it. Of several the one that has most, then the one that caught up last.
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
        in_sync = partition.in_sync
        able = [
            (follower.log_end, follower.caught_up_at, replica)
            for replica, follower in in_sync.followers.items()
            if replica in near
            and replica in in_sync.isr
            and 0 <= follower.log_start <= offset <= follower.log_end
        ]
        return max(able)[2] if able else None
