"""Where the other brokers are: at the listener that brokers keep for themselves."""

from barnabas.broker.metadata.cache import Endpoint, MetadataCache
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.peers.peer import Peer
from barnabas.broker.server.network import Network


class Peers:
    """Makes lines to other brokers; whoever asks for one owns it, and closes it."""

    def __init__(
        self, cache: MetadataCache, network: Network, *, broker_id: int, listener: str
    ) -> None:
        """`listener` is the name of `inter.broker.listener.name`."""
        self._cache = cache
        self._network = network
        self._listener = listener
        self._client_id = f"broker-{broker_id}"

    def to(self, broker_id: int) -> Peer:
        """A line to a broker wherever the cluster says that it is at the time."""
        return Peer(
            lambda: self._cache.endpoint(broker_id, self._listener),
            self._network,
            client_id=self._client_id,
        )

    def at(self, broker: BrokerInfo) -> Peer:
        """A line to one incarnation of a broker, where its registration says."""
        found = None
        for endpoint in broker.endpoints:
            if endpoint.listener == self._listener:
                found = Endpoint(endpoint.host, endpoint.port)
        return Peer(lambda: found, self._network, client_id=self._client_id)
