"""The answers of `barnabas cluster` and `barnabas brokers`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class BrokerAddress(Answer):
    """The address of a live broker."""

    broker: int
    address: str
    """HOST:PORT."""
    rack: str | None


@dataclass(frozen=True, slots=True)
class Broker(BrokerAddress):
    """A live broker."""

    controller: bool
    """Whether it is the active controller."""
    leaders: int
    """The number of partitions that it leads."""
    replicas: int
    """The number of replicas that are assigned to it."""


@dataclass(frozen=True, slots=True)
class DescribedBroker(Broker):
    """A live broker with its log directories."""

    log_dirs: list[str]
    offline_log_dirs: list[str]
    bytes: int
    """The size of all replicas on it."""


@dataclass(frozen=True, slots=True)
class PlannedPartition(Answer):
    """A partition whose replicas would change; the first is the preferred leader."""

    topic: str
    partition: int
    replicas: list[int]
    wanted: list[int]


@dataclass(frozen=True, slots=True)
class NeededBroker(Answer):
    """A partition that needs a broker."""

    topic: str
    partition: int
    problem: str


@dataclass(frozen=True, slots=True)
class DrainedBroker(Answer):
    """A broker whose leaders, and with --replicas replicas, have moved."""

    broker: int
    leaders: int
    """The number of partitions that it still leads."""
    replicas: int
    """The number of replicas on it."""
    may_be_stopped: bool
    problems: list[NeededBroker]
    """Partitions that would lack a leader or min.insync.replicas, or that it still leads."""


@dataclass(frozen=True, slots=True)
class UndrainedBroker(Answer):
    """A broker that has leaders again."""

    broker: int
    leaders: int
    """The number of partitions that it leads more."""


@dataclass(frozen=True, slots=True)
class ClusterInfo(Answer):
    """A cluster; the numbers do not count internal topics."""

    cluster_id: str
    controller: int | None
    """The broker id of the active controller."""
    brokers: list[BrokerAddress]
    features: dict[str, int]
    """The finalized level of each feature by its name, such as transaction.version (KIP-584)."""
    topics: int
    partitions: int
    groups: int


@dataclass(frozen=True, slots=True)
class Problem(Answer):
    """A problem of a cluster."""

    check: Literal["controller", "leaders", "isr", "brokers", "directories", "transactions"]
    """The check that has found it."""
    where: str
    """TOPIC-PARTITION, `broker ID` or `cluster`."""
    problem: str


@dataclass(frozen=True, slots=True)
class Event(Answer):
    """An event that a broker keeps."""

    time_ms: int
    broker: int
    sequence: int
    """The number of the event among those of this run of the broker."""
    kind: str
    """As in docs/events.md."""
    subject: dict[str, str | int]
    """Topic and partition, group, transactional id, broker or lever."""
    text: str


@dataclass(frozen=True, slots=True)
class Restart(Answer):
    """A live broker, and the reasons against its restart now."""

    broker: int
    controller: bool
    """Whether it is the active controller."""
    may_be_restarted: bool
    problems: list[str]
    """Problems of the cluster, and partitions that need the broker."""


@dataclass(frozen=True, slots=True)
class HealthChange(Answer):
    """A change that `--watch` saw: a line. The first one has all problems."""

    at_ms: int
    healthy: bool
    """Whether there is no problem now."""
    appeared: list[Problem]
    """New problems, and those whose text has changed; a cause before its symptoms."""
    solved: list[Problem]


ANSWERS: Final[dict[str, Any]] = {
    "cluster info": ClusterInfo,
    "cluster health": list[Problem] | HealthChange,
    "cluster events": list[Event] | Event,
    "cluster rolling-restart": list[Restart],
    "brokers list": list[Broker],
    "brokers describe": DescribedBroker,
    "brokers drain": DrainedBroker | list[PlannedPartition],
    "brokers undrain": UndrainedBroker | list[PlannedPartition],
}
