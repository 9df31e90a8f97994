"""The answers of `barnabas partitions`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer

State = Literal["done", "moving", "moving elsewhere", "elsewhere"]


@dataclass(frozen=True, slots=True)
class PlanProgress(Answer):
    """A partition of a plan, and the progress of its reassignment."""

    topic: str
    partition: int
    state: State
    """`elsewhere`: the replicas are others than in the plan."""
    replicas: list[int]
    wanted: list[int]


@dataclass(frozen=True, slots=True)
class Outcome(Answer):
    """The outcome of a change of a partition."""

    topic: str
    partition: int
    result: str
    """The change that was made, or the error."""


@dataclass(frozen=True, slots=True)
class MovingPartition(Answer):
    """A partition that is being reassigned."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass(frozen=True, slots=True)
class BalancedBroker(Answer):
    """A broker before and after a balance."""

    broker: int
    replicas: int
    replicas_after: int
    bytes: int
    """The size of the replicas on it."""
    bytes_after: int
    leaders: int
    """The number of partitions whose preferred leader it is."""
    leaders_after: int


@dataclass(frozen=True, slots=True)
class Balance(Answer):
    """The loads of the brokers before and after a balance, and the moves between."""

    brokers: list[BalancedBroker]
    moved_replicas: int
    moved_bytes: int
    moved_leaders: int
    """The number of partitions that get another preferred leader."""
    changed: bool
    """False with --dry-run, and if the brokers were balanced."""


ANSWERS: Final[dict[str, Any]] = {
    "partitions reassign": list[Outcome] | list[PlanProgress],
    "partitions verify": list[PlanProgress],
    "partitions list": list[MovingPartition],
    "partitions cancel": list[Outcome],
    "partitions elect": list[Outcome],
    "partitions balance": Balance,
}
