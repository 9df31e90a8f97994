"""The coordinators on other brokers that send markers, as the receiver knows them."""

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.peers import broker_id_of
from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.broker.server.context import RequestContext


class MarkerOrigins:
    """The brokers that send markers over the inter-broker listener."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._newest_connections: dict[int, int] = {}
        """By broker id, the latest connection on which the broker sent markers."""
        self._newest_epoch = 0

    def is_outdated(self, context: RequestContext) -> bool:
        """Return whether the broker has sent markers over a later connection than this one.

        A broker keeps one connection for markers. A request that arrives over an older one was
        delayed, and its markers have been sent again. With the older protocol (before KIP-890) a
        delayed marker could end the producer's next transaction.
        """
        broker_id = broker_id_of(context.client_id)
        if broker_id is None or broker_id not in self._cache.brokers:
            return False
        newest = self._newest_connections.get(broker_id, context.connection_id)
        self._newest_connections[broker_id] = max(newest, context.connection_id)
        return context.connection_id < newest

    def has_epoch(self, coordinator_epoch: int) -> bool:
        """Return whether a coordinator can have this epoch: the leader epoch of a partition.

        A marker of the future would fence the coordinators of its producer for good.
        """
        if coordinator_epoch > self._newest_epoch:
            topic = self._cache.topic(TRANSACTION_STATE)
            epochs = [] if topic is None else [p.leader_epoch for p in topic.partitions.values()]
            self._newest_epoch = max(epochs, default=0)
        return coordinator_epoch <= self._newest_epoch
