"""The JSON answers of `barnabas partitions`."""

from typing import Any, Final, Literal

from barnabas.cli.answers.model import Answer
from barnabas.client.plan_file import PlanFile


class PlanProgress(Answer):
    """A partition of a plan, and the progress of its reassignment."""

    topic: str
    partition: int
    state: Literal["done", "moving", "moving elsewhere", "elsewhere"]
    """`elsewhere`: the replicas are others than in the plan."""
    replicas: list[int]
    wanted: list[int]


class Outcome(Answer):
    """The outcome of a change of a partition."""

    topic: str
    partition: int
    result: str
    """The change that was made, or the error."""


class MovingPartition(Answer):
    """A partition that is being reassigned."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


ANSWERS: Final[dict[str, Any]] = {
    "partitions plan": PlanFile,
    "partitions reassign": list[Outcome] | list[PlanProgress],
    "partitions verify": list[PlanProgress],
    "partitions list": list[MovingPartition],
    "partitions cancel": list[Outcome],
    "partitions elect": list[Outcome],
}
