"""The requests and answers of the faults over HTTP."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_WAIT = 300.0
"""Seconds that one request may wait."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Model(BaseModel):
    """An object of JSON without other fields, whose values have their own types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """The parameters of a query, which are texts."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Model):
    """An empty object."""


class Touching(Model):
    """The requests that a lever touches."""

    api: str | int = Field(description="Kafka's name of the API, such as EndTxn, or its key.")
    client_id: str | None = Field(None, description="Requests of clients with this id alone.")
    topic: str | None = Field(None, description="Requests that name this topic alone.")
    transactional_id: str | None = Field(None, description="Requests with this id alone.")
    broker: int | None = Field(None, description="Requests to this broker alone.")


class Hold(Touching):
    """Hold one request until it is released."""

    number: int = Field(1, ge=1, description="The number of the request among those that match.")


class Delay(Touching):
    """Delay requests."""

    seconds: Seconds
    times: int | None = Field(None, ge=1, description="So many requests; without it, all.")


class Refuse(Touching):
    """Answer requests with an error; they are not handled."""

    code: str | int = Field(description="Kafka's name of the error, or its code.")
    times: int | None = Field(None, ge=1, description="So many requests; without it, all.")


class Added(Model):
    """A lever that is in force."""

    lever: int


class Lever(Model):
    """A lever, and the requests that it has touched on brokers that run."""

    lever: int
    kind: Literal["hold", "delay", "error"]
    api: str | int
    touched: int
    released: bool


class Wait(Model):
    """Wait until the lever has touched a request."""

    timeout: float = Field(30.0, gt=0, le=MOST_WAIT)


class Partition(Model):
    """Cut the links between brokers of different groups."""

    groups: list[list[int]]
    one_way: bool = Field(False, description="From the first group to the others only.")


class Cut(Model):
    """Cut brokers off."""

    brokers: list[int]
    off: Literal["clients", "store", "all"] = Field(
        "all", description="From clients, from the metadata store, or from these and all brokers."
    )


class Jump(Model):
    """Advance the clock by which transactions time out."""

    seconds: Seconds


class TopicPartition(Query):
    """A partition."""

    topic: str
    partition: int = 0


class Key(Query):
    """A group or a transactional id: one of the two."""

    group: str = ""
    transactional_id: str = ""


class MoveLeader(Model):
    """Make a replica in sync the leader of a partition."""

    topic: str
    partition: int = 0
    to: int


class MoveCoordinator(Model):
    """Make a broker the coordinator of a group or of a transactional id."""

    group: str = ""
    transactional_id: str = ""
    to: int


class BrokerId(Model):
    """A broker."""

    broker: int


class BrokerState(Model):
    """A broker, and the state of its process."""

    broker: int
    address: str
    state: Literal["running", "paused", "starting", "down"]


class Cluster(Model):
    """All brokers; the controller is null while an election is open."""

    brokers: list[BrokerState]
    controller: int | None


class Error(Model):
    """An error, in one line."""

    error: str
