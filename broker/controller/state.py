"""What the controller knows of the cluster; changed only by the controller's event loop."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.broker.controller.election import ElectionPolicy, Situation
from barnabas.broker.controller.reassignment import Assignment
from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import (
    NEVER_JUDGED,
    BrokerInfo,
    LeaderAndIsr,
    TopicAssignment,
)
from barnabas.protocol.errors import ErrorCode, KafkaError


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(slots=True)
class Partition:
    """`state` is None until the first leader was chosen.

    `created_at` is the zxid of that choice. `offline` has the replicas that their broker reported
    as not usable (a failed log directory).
    """

    replicas: tuple[int, ...]
    state: LeaderAndIsr | None = None
    created_at: int = -1
    offline: set[int] = field(default_factory=set)
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The replicas, and how they are changing."""
        return Assignment(self.replicas, self.adding, self.removing)

    def assign(self, assignment: Assignment) -> None:
        self.replicas, self.adding, self.removing = assignment
        self.offline.intersection_update(self.replicas)

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
        partitions = {
            index: Partition(
                ids,
                adding=assignment.adding.get(index, ()),
                removing=assignment.removing.get(index, ()),
            )
            for index, ids in assignment.replicas.items()
        }
        return cls(name, assignment.topic_id, partitions)

    @property
    def assignment(self) -> TopicAssignment:
        return assignment_of(
            self, {index: each.assignment for index, each in self.partitions.items()}
        )

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].assignment.target)


def assignment_of(topic: Topic, partitions: Mapping[int, Assignment]) -> TopicAssignment:
    """What the topic's node says of these partitions."""
    return TopicAssignment(
        topic.topic_id,
        {index: each.replicas for index, each in partitions.items()},
        {index: each.adding for index, each in partitions.items() if each.adding},
        {index: each.removing for index, each in partitions.items() if each.removing},
    )


@dataclass(slots=True)
class ClusterState:
    """Topics by name and id, and the brokers that are alive.

    Some of those want to stop (`leaving`). `missing` has brokers that are not registered, but whose
    leaderships are left alone for a while, because all registrations went at once. `unreadable` has
    the names of topics whose nodes are not in the expected form: nobody touches what is theirs.
    """

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    missing: frozenset[int] = frozenset()
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    reassigning: set[TopicPartition] = field(default_factory=set)

    def add(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self.reassigning.update(
            at for at in self.partitions([topic]) if self.partition(at).assignment.ongoing
        )

    def remove(self, topic: Topic) -> None:
        del self.topics[topic.name]
        del self.names[topic.topic_id]
        self.reassigning.difference_update(self.partitions([topic]))

    @property
    def names_taken(self) -> Collection[str]:
        """Names that no new topic can have."""
        known = self.topics.keys()
        return known | self.unreadable if self.unreadable else known

    def assign(self, at: TopicPartition, assignment: Assignment) -> None:
        """The partition has these replicas from now on."""
        self.partition(at).assign(assignment)
        (self.reassigning.add if assignment.ongoing else self.reassigning.discard)(at)

    def find(self, topic_id: bytes, partition: int) -> TopicPartition:
        """Raises UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION."""
        name = self.names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if partition not in self.topics[name].partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TopicPartition(name, partition)

    def partition(self, at: TopicPartition) -> Partition:
        return self.topics[at.topic].partitions[at.partition]

    def partitions(self, topics: Iterable[Topic] | None = None) -> Iterator[TopicPartition]:
        """All partitions of these topics, or of all."""
        for topic in self.topics.values() if topics is None else topics:
            for index in topic.partitions:
                yield TopicPartition(topic.name, index)

    def on_brokers(self, brokers: Set[int]) -> Iterator[TopicPartition]:
        """Partitions of which one of these brokers has a replica."""
        for at in self.partitions():
            if not brokers.isdisjoint(self.partition(at).replicas):
                yield at

    def online(self, partition: Partition) -> set[int]:
        """Brokers whose replica of the partition can serve."""
        return {
            replica
            for replica in partition.replicas
            if (replica in self.brokers or replica in self.missing)
            and replica not in partition.offline
        }

    def situation(self, partition: Partition, policy: ElectionPolicy) -> Situation:
        """What an election of this partition's leader looks at."""
        return Situation(
            self.online(partition),
            self.leaving,
            {
                replica: broker.restart
                for replica in partition.replicas
                if (broker := self.brokers.get(replica)) is not None
                and (partition.state is None or broker.epoch > partition.state.judged_until)
            },
            policy,
            self.missing,
        )

    def judged(self, decision: LeaderAndIsr) -> LeaderAndIsr:
        """A decision, and which registrations it knows of: those of this state."""
        newest = max((broker.epoch for broker in self.brokers.values()), default=NEVER_JUDGED)
        return replace(decision, judged_until=newest)

    def members(self) -> frozenset[int]:
        """Brokers that are in sync somewhere."""
        return frozenset(
            member
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            if partition.state is not None
            for member in partition.state.isr
        )

    @property
    def established(self) -> bool:
        """Whether a broker that is alive is in sync somewhere since it has registered."""
        return any(
            (broker := self.brokers.get(member)) is not None
            and broker.epoch <= partition.state.judged_until
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            if partition.state is not None
            for member in partition.state.isr
        )
