"""The files of kafka-reassign-partitions.sh as pydantic models; imported only for such a file."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

ANY_DIRECTORY: Final = "any"
_Id = Annotated[int, Field(ge=0, lt=1 << 31)]


def _distinct(ids: list[int]) -> list[int]:
    if len(set(ids)) != len(ids):
        raise ValueError("a broker cannot have two replicas")
    return ids


def _any(name: str) -> str:
    if name != ANY_DIRECTORY:
        raise ValueError(f'only "{ANY_DIRECTORY}" is possible here')
    return name


class _Strict(BaseModel):
    """An object whose numbers are numbers; as in Kafka's tool, keys that are unknown do nothing."""

    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class PlannedPartition(_Strict):
    """A partition of a plan."""

    topic: Annotated[str, Field(min_length=1)]
    partition: _Id
    replicas: Annotated[list[_Id], Field(min_length=1), AfterValidator(_distinct)]
    """Ids of brokers, the preferred leader first."""
    log_dirs: list[Annotated[str, AfterValidator(_any)]] | None = None
    """The log directory of each replica: `any`, since a plan cannot choose it here."""


class PlanFile(_Strict):
    """A plan of reassignments."""

    version: Literal[1] = 1
    partitions: Annotated[list[PlannedPartition], Field(min_length=1)]
