"""What the controller knows of the cluster; changed only by the controller's event loop."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import BrokerInfo, LeaderAndIsr, TopicAssignment


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(slots=True)
class Partition:
    """`state` is None until the first leader was chosen; `decided_at` is the zxid of that choice.

    `offline` has the replicas that their broker reported as not usable (a failed log directory).
    """

    replicas: tuple[int, ...]
    state: LeaderAndIsr | None = None
    decided_at: int = -1
    offline: set[int] = field(default_factory=set)

    @property
    def leader(self) -> int:
        return NO_LEADER if self.state is None else self.state.leader


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: dict[int, Partition]

    @classmethod
    def of(cls, name: str, assignment: TopicAssignment) -> "Topic":
        partitions = {index: Partition(ids) for index, ids in assignment.replicas.items()}
        return cls(name, assignment.topic_id, partitions)

    @property
    def assignment(self) -> TopicAssignment:
        replicas = {index: partition.replicas for index, partition in self.partitions.items()}
        return TopicAssignment(self.topic_id, replicas)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


@dataclass(slots=True)
class ClusterState:
    """Topics by name and id, and the brokers that are alive."""

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def add(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name

    def remove(self, topic: Topic) -> None:
        del self.topics[topic.name]
        del self.names[topic.topic_id]

    def partition(self, at: TopicPartition) -> Partition:
        return self.topics[at.topic].partitions[at.partition]

    def partitions(self, topics: Iterable[Topic] | None = None) -> Iterator[TopicPartition]:
        """All partitions of these topics, or of all."""
        for topic in self.topics.values() if topics is None else topics:
            for index in topic.partitions:
                yield TopicPartition(topic.name, index)

    def online(self, partition: Partition) -> set[int]:
        """Brokers whose replica of the partition can serve."""
        return {
            replica
            for replica in partition.replicas
            if replica in self.brokers and replica not in partition.offline
        }

    def restarted(self, partition: Partition) -> bool:
        """Whether the leader's broker has registered anew since it was chosen."""
        leader = self.brokers.get(partition.leader)
        return leader is not None and leader.epoch > partition.decided_at
