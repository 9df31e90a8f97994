"""Rules for new topics and new partitions; pure. All raise KafkaError with a message for the
client."""

from collections.abc import Container, Mapping, Sequence
from random import Random

from barnabas.broker.cluster.new_topics import USE_DEFAULT, NewTopic
from barnabas.broker.cluster.topic_names import check_name, refuse_internal
from barnabas.broker.cluster.znodes import TopicAssignment
from barnabas.broker.controller.rules.cluster_state import ClusterState, ClusterTopic, NamesTaken
from barnabas.broker.controller.rules.placement import place
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps

MAX_NEW_PARTITIONS = 10_000
"""Number of new partitions that one request may ask for; Kafka's limit for new topics."""


def check_new_name(new: NewTopic, existing: NamesTaken) -> None:
    """Raise if a name is illegal, taken, reserved, or collides with another in metrics, where '.'
    is written as '_'."""
    name = new.name
    check_name(name)
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if not new.internal:
        refuse_internal(name)
    other = existing.colliding(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def check_new_partitions(count: int, limit: int = MAX_NEW_PARTITIONS) -> None:
    """Raise POLICY_VIOLATION for more new partitions than the request may still ask for."""
    if count > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may bring {MAX_NEW_PARTITIONS} new partitions at most.",
        )


def new_partitions(new: NewTopic, default_partitions: int) -> int:
    """Return the number of partitions of a new topic; 0 if the request is invalid."""
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
) -> Steps[dict[int, tuple[int, ...]]]:
    """Return the replicas by partition of a new topic."""
    if new.assignments:
        return (yield from _assign_manually(new, state))
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
    return (
        yield from place(
            _racks(state),
            default_partitions if new.num_partitions == USE_DEFAULT else new.num_partitions,
            default_replication_factor if factor == USE_DEFAULT else factor,
            random,
        )
    )


def assign_partitions(
    topic: ClusterTopic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    state: ClusterState,
    random: Random,
    *,
    limit: int = MAX_NEW_PARTITIONS,
) -> Steps[dict[int, tuple[int, ...]]]:
    """Return the replicas by partition of new partitions that grow a topic to `count`; at most
    `limit` may be new."""
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
        return (yield from place(_racks(state), count - present, factor, random, first=present))
    if len(assignments) != count - present:
        raise _bad_assignment(
            f"Attempted to add {count - present} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified."
        )
    assigned = {}
    for index, brokers in enumerate(assignments, present):
        check_assignment(brokers, topic.replication_factor, state.brokers)
        assigned[index] = tuple(brokers)
        yield None
    return assigned


def extended(topic: ClusterTopic, added: Mapping[int, tuple[int, ...]]) -> TopicAssignment:
    """Return the topic's assignment with new partitions."""
    now = topic.assignment
    return now._replace(replicas={**now.replicas, **added})


def _assign_manually(new: NewTopic, state: ClusterState) -> Steps[dict[int, tuple[int, ...]]]:
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
        yield None
    if set(assigned) != set(range(len(assigned))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return dict(sorted(assigned.items()))


def check_assignment(
    brokers: Sequence[int], factor: int | None, registered: Container[int]
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT for an impossible replica list."""
    if not brokers:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    before = None
    for broker in sorted(brokers):
        if broker not in registered:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered."
            )
        if broker == before:
            raise _bad_assignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        before = broker
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
