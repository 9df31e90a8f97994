"""The broker's cache of cluster metadata, from the controller's UpdateMetadata requests."""

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.schema import Encoded
from barnabas.protocol.steps import Steps
from barnabas.protocol.types import ZERO_UUID

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Leader id that the controller sends for a partition that is being deleted."""
EPOCH_DURING_DELETE = -2
"""Leader epoch that the controller sends with a deletion: no request of an older decision can undo
it."""
MAX_BROKERS = 10_000
"""The most brokers of an update: to sort more takes long."""
INCREMENTAL, FULL = 1, 2
"""Types of the controller's requests. A full request names everything that exists."""


class Endpoint(NamedTuple):
    host: str
    port: int


class BrokerNode(NamedTuple):
    """A registered broker, with one endpoint for each of its listeners."""

    id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]


class PartitionMetadata(NamedTuple):
    partition_index: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionMetadata]
    encoded: dict[Hashable, Encoded]
    """The topic as it stands in answers of Metadata, by everything else that they depend on; empty
    after each change of the topic."""


class MetadataCache:
    """The topics by name and id with their leaders, the registered brokers, and the controller.

    Not `ready` before the first full update: the error "unknown topic" would make producers drop
    their sequence state.
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.ready = False
        self.broker_changes = 0
        """The number of changes of the brokers and their endpoints."""
        self.topic_changes = 0
        """The number of changes of the topics: while it is equal, no topic has changed."""
        self._known = _Topics()
        self._brokers: dict[int, BrokerNode] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def brokers(self) -> Mapping[int, BrokerNode]:
        """Registered brokers, by id in ascending order."""
        return self._brokers

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        return self._known.by_name

    def topic(self, name: str) -> TopicMetadata | None:
        return self._known.by_name.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._known.names.get(topic_id)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        name = self._known.names.get(topic_id)
        return None if name is None else self._known.by_name.get(name)

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        found = self._known.by_name.get(topic)
        return None if found is None else found.partitions.get(index)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the broker's endpoint at this listener; None if the broker is down or has no such
        listener."""
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def out_of_sync(self, broker_id: int) -> Steps[list[str]]:
        """Return the partitions, as `topic-index`, with a replica on this broker that is not in
        the ISR."""
        found = []
        # Copies: updates may change the dictionaries between two steps.
        for topic in list(self.topics.values()):
            for partition in list(topic.partitions.values()):
                if broker_id in partition.replicas and broker_id not in partition.isr:
                    found.append(f"{topic.name}-{partition.partition_index}")
                yield None
            yield None
        return found

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every update."""
        self._listeners.append(listener)

    def apply(self, request: UpdateMetadataRequest) -> Steps[None]:
        """Apply an update; the caller has checked the controller's epoch.

        A full one replaces the topics at its end, in one go. Raises INVALID_REQUEST for more than
        `MAX_BROKERS`.
        """
        brokers = yield from _nodes(request.live_brokers)
        self.controller_id = request.controller_id
        if brokers != self._brokers:
            self._brokers = brokers
            self.broker_changes += 1
        known = _Topics() if request.type == FULL else self._known
        for topic in request.topic_states:
            yield from known.update(topic)
            self.topic_changes += 1
            yield None
        replaced: list[TopicMetadata] = []
        if request.type == FULL:
            replaced += self._known.by_name.values()
            self._known = known
            self.ready = True
            self.topic_changes += 1
        for listener in self._listeners:
            listener()
        while replaced:
            # To free all of them in one go takes long.
            replaced.pop()
            yield None


class _Topics:
    """The topics, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicMetadata] = {}
        self.names: dict[bytes, str] = {}

    def update(self, update: UpdateMetadataTopicState) -> Steps[None]:
        topic = self.by_name.get(update.topic_name)
        if topic is None or topic.topic_id != update.topic_id:
            self._forget(topic)
            topic = TopicMetadata(update.topic_name, update.topic_id, {}, {})
            self.by_name[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                self.names[topic.topic_id] = topic.name
        for partition in update.partition_states:
            if partition.leader == LEADER_DURING_DELETE:
                topic.partitions.pop(partition.partition_index, None)
            else:
                topic.partitions[partition.partition_index] = _partition(partition)
            # For each partition: between two steps a request may encode the topic again.
            topic.encoded.clear()
            yield None
        if not topic.partitions:
            self._forget(topic)

    def _forget(self, topic: TopicMetadata | None) -> None:
        if topic is not None:
            del self.by_name[topic.name]
            self.names.pop(topic.topic_id, None)


def _partition(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        partition_index=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        replicas=tuple(state.replicas),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=state.zk_version,
    )


def _nodes(brokers: list[UpdateMetadataBroker]) -> Steps[dict[int, BrokerNode]]:
    if len(brokers) > MAX_BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {MAX_BROKERS} brokers")
    nodes = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        endpoints = {}
        for each in broker.endpoints:
            endpoints[each.listener] = Endpoint(each.host, each.port)
            yield None
        nodes[broker.id] = BrokerNode(broker.id, broker.rack, endpoints)
        yield None
    return nodes
