"""The controller's state of the cluster, changed only by the controller's event queue."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.znodes import (
    NEVER_JUDGED,
    BrokerInfo,
    LeaderAndIsr,
    TopicAssignment,
)
from barnabas.broker.controller.rules.leader_election import ElectionInputs, ElectionPolicy
from barnabas.broker.controller.rules.reassignment import Assignment
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


@dataclass(slots=True)
class ClusterPartition:
    """A partition. `state` is None until the first leader is elected.

    `created_at` is the zxid of that election. `offline` has the replicas that their broker reported
    as unusable (a failed log directory).
    """

    replicas: tuple[int, ...]
    state: LeaderAndIsr | None = None
    created_at: int = -1
    offline: set[int] = field(default_factory=set)
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The replicas, and their reassignment."""
        return Assignment(self.replicas, self.adding, self.removing)

    def assign(self, assignment: Assignment) -> None:
        self.replicas, self.adding, self.removing = assignment
        self.offline.intersection_update(self.replicas)

    @property
    def leader(self) -> int:
        return NO_LEADER if self.state is None else self.state.leader


@dataclass(slots=True)
class ClusterTopic:
    name: str
    topic_id: bytes
    partitions: dict[int, ClusterPartition]

    @classmethod
    def of(cls, name: str, assignment: TopicAssignment) -> "ClusterTopic":
        partitions = {
            index: ClusterPartition(
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


def assignment_of(topic: ClusterTopic, partitions: Mapping[int, Assignment]) -> TopicAssignment:
    """Return the assignment of these partitions, as written to the topic's node."""
    return TopicAssignment(
        topic.topic_id,
        {index: each.replicas for index, each in partitions.items()},
        {index: each.adding for index, each in partitions.items() if each.adding},
        {index: each.removing for index, each in partitions.items() if each.removing},
    )


class NamesTaken:
    """The names that a new topic cannot have, also as metrics write them: with '_' for '.'."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._written: dict[str, set[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names.add(name)
        self._written.setdefault(name.replace(".", "_"), set()).add(name)

    def discard(self, name: str) -> None:
        if name in self._names:
            self._names.discard(name)
            written = name.replace(".", "_")
            self._written[written].discard(name)
            if not self._written[written]:
                del self._written[written]

    def colliding(self, name: str) -> str | None:
        """Return a taken name that metrics cannot tell from this one."""
        return min(self._written.get(name.replace(".", "_"), ()), default=None)


@dataclass(slots=True)
class ClusterState:
    """The topics by name and id, and the registered brokers.

    Brokers in `leaving` are shutting down. Brokers in `missing` are not registered but keep their
    leaderships for a while, because all registrations ended at once. `unreadable` has the names of
    topics with damaged nodes; the controller does not touch them.
    """

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    missing: frozenset[int] = frozenset()
    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    names_taken: NamesTaken = field(default_factory=NamesTaken)
    reassigning: set[TopicPartition] = field(default_factory=set)

    def add(self, topic: ClusterTopic) -> None:
        self.topics[topic.name] = topic
        self.names_taken.add(topic.name)
        self.names[topic.topic_id] = topic.name
        self.reassigning.update(
            at for at in self.partitions([topic]) if self.partition(at).assignment.ongoing
        )

    def remove(self, topic: ClusterTopic) -> None:
        del self.topics[topic.name]
        self.names_taken.discard(topic.name)
        del self.names[topic.topic_id]
        self.reassigning.difference_update(self.partitions([topic]))

    def assign(self, at: TopicPartition, assignment: Assignment) -> None:
        """Change the replicas of a partition."""
        self.partition(at).assign(assignment)
        (self.reassigning.add if assignment.ongoing else self.reassigning.discard)(at)

    def find(self, topic_id: bytes, partition: int) -> TopicPartition:
        """Return the partition with this topic id; raises UNKNOWN_TOPIC_ID,
        UNKNOWN_TOPIC_OR_PARTITION."""
        name = self.names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if partition not in self.topics[name].partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TopicPartition(name, partition)

    def partition(self, at: TopicPartition) -> ClusterPartition:
        return self.topics[at.topic].partitions[at.partition]

    def partitions(self, topics: Iterable[ClusterTopic] | None = None) -> Iterator[TopicPartition]:
        """Return the partitions of these topics, or of all."""
        for topic in self.topics.values() if topics is None else topics:
            for index in topic.partitions:
                yield TopicPartition(topic.name, index)

    def on_brokers(self, brokers: Set[int]) -> Iterator[TopicPartition]:
        """Return the partitions with a replica on one of these brokers."""
        for at in self.partitions():
            if not brokers.isdisjoint(self.partition(at).replicas):
                yield at

    def online(self, partition: ClusterPartition) -> set[int]:
        """Return the brokers whose replica of the partition can serve."""
        return {
            replica
            for replica in partition.replicas
            if (replica in self.brokers or replica in self.missing)
            and replica not in partition.offline
        }

    def election_inputs(
        self, partition: ClusterPartition, policy: ElectionPolicy, *, keeps_epoch: bool = False
    ) -> ElectionInputs:
        """Return the inputs of a leader election of this partition."""
        return ElectionInputs(
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
            keeps_epoch,
        )

    def mark_judged(self, decision: LeaderAndIsr) -> LeaderAndIsr:
        """Return the decision with `judged_until` set to the newest registration in this state."""
        newest = max((broker.epoch for broker in self.brokers.values()), default=NEVER_JUDGED)
        return replace(decision, judged_until=newest)

    def members(self) -> frozenset[int]:
        """Return the brokers that are in sync for at least one partition."""
        return frozenset(
            member
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            if partition.state is not None
            for member in partition.state.isr
        )

    @property
    def established(self) -> bool:
        """Whether a registered broker has been in sync anywhere since its registration."""
        return any(
            (broker := self.brokers.get(member)) is not None
            and broker.epoch <= partition.state.judged_until
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            if partition.state is not None
            for member in partition.state.isr
        )
