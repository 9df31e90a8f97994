"""Rules for new topics and new partitions; pure. All raise KafkaError with what a client reads."""

from collections.abc import Collection, Container, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from barnabas.broker.controller.placement import place
from barnabas.broker.controller.state import ClusterState, Topic
from barnabas.broker.metadata.topic_names import check_name, refuse_internal
from barnabas.broker.metadata.znodes import TopicAssignment
from barnabas.protocol.errors import ErrorCode, KafkaError

USE_DEFAULT = -1
MAX_NEW_PARTITIONS = 10_000
"""How many partitions one request may bring. The number is Kafka's, for new topics."""


class NewTopic(NamedTuple):
    """What a client asks for. Counts of -1 mean the broker's defaults, or manual assignments."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition and its broker ids, the preferred leader first."""
    configs: Mapping[str, str | None] = MappingProxyType({})
    internal: bool = False
    """Whether the brokers want it for themselves: nobody else creates topics of those names."""


class CreatedTopic(NamedTuple):
    """What became of a `NewTopic`."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int


def check_new_name(new: NewTopic, existing: Collection[str]) -> None:
    """Raises for a name that is illegal, taken, not the client's to give, or too like another:
    metrics write '.' as '_'."""
    name = new.name
    check_name(name)
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if not new.internal:
        refuse_internal(name)
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == folded:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )


def check_new_partitions(count: int, limit: int = MAX_NEW_PARTITIONS) -> None:
    """Raises POLICY_VIOLATION for more partitions than a request may still bring."""
    if count > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may bring {MAX_NEW_PARTITIONS} new partitions at most.",
        )


def new_partitions(new: NewTopic, default_partitions: int) -> int:
    """How many partitions a topic would have; 0 where what it asks for is not possible."""
    if new.assignments:
        return len(new.assignments)
    return default_partitions if new.num_partitions == USE_DEFAULT else max(0, new.num_partitions)


def assign_topic(
    new: NewTopic,
    state: ClusterState,
    random: Random,
    *,
    default_partitions: int,
    default_replication_factor: int,
) -> dict[int, tuple[int, ...]]:
    """Broker ids by partition for a new topic."""
    if new.assignments:
        return _assign_manually(new, state)
    if new.replication_factor == 0 or new.replication_factor < USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.num_partitions == 0 or new.num_partitions < USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = new.replication_factor
    return place(
        _racks(state),
        default_partitions if new.num_partitions == USE_DEFAULT else new.num_partitions,
        default_replication_factor if factor == USE_DEFAULT else factor,
        random,
    )


def assign_partitions(
    topic: Topic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    state: ClusterState,
    random: Random,
    *,
    limit: int = MAX_NEW_PARTITIONS,
) -> dict[int, tuple[int, ...]]:
    """Broker ids by partition for the at most `limit` partitions that take a topic to `count`."""
    present = len(topic.partitions)
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {count} would not be "
            "an increase.",
        )
    check_new_partitions(count - present, limit)
    if assignments is None:
        factor = topic.replication_factor
        return place(_racks(state), count - present, factor, random, first=present)
    if len(assignments) != count - present:
        raise _bad_assignment(
            f"Attempted to add {count - present} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified."
        )
    assigned = {}
    for index, brokers in enumerate(assignments, present):
        check_assignment(brokers, topic.replication_factor, state.brokers)
        assigned[index] = tuple(brokers)
    return assigned


def extended(topic: Topic, added: Mapping[int, tuple[int, ...]]) -> TopicAssignment:
    """The topic's assignment with further partitions."""
    now = topic.assignment
    return now._replace(replicas={**now.replicas, **added})


def _assign_manually(new: NewTopic, state: ClusterState) -> dict[int, tuple[int, ...]]:
    if new.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        )
    if new.num_partitions != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    assigned: dict[int, tuple[int, ...]] = {}
    factor = None
    for index, brokers in new.assignments:
        if index in assigned:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        check_assignment(brokers, factor, state.brokers)
        factor = len(brokers)
        assigned[index] = tuple(brokers)
    if set(assigned) != set(range(len(assigned))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return dict(sorted(assigned.items()))


def check_assignment(
    brokers: Sequence[int], factor: int | None, registered: Container[int]
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for replicas that no partition can have."""
    if not brokers:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for position, broker in enumerate(sorted(brokers)):
        if broker not in registered:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered."
            )
        if position and broker == sorted(brokers)[position - 1]:
            raise _bad_assignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
    if factor is not None and len(brokers) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(brokers)} "
            f"replica(s), but this is not consistent with previous partitions, which have "
            f"{factor} replica(s)."
        )


def _racks(state: ClusterState) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in state.brokers.values()}


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
