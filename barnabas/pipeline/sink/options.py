"""The options of the sink, `df.writeStream.format("barnabas").option(...)`, and its columns.

Spark passes the names of options in lower case. Every error is one line that says what to do.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from barnabas.client.cluster import parse_address
from barnabas.config.key import ConfigError
from barnabas.config.spelling import closest
from barnabas.pipeline.errors import OneLineError
from barnabas.pipeline.security import OPEN, Security, split_security
from barnabas.protocol.records.compression import Compression

MAX_SINK_ID: Final = 200
"""Characters of a sinkId: the name of its topic of decisions has at most 249."""
QUERY: Final = "queryname"
"""The option that Spark sets to the query's name."""
CHECKPOINT: Final = "checkpointlocation"

_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class SinkOptionsError(OneLineError, ValueError):
    """An option, a column or a setting of Spark that the sink cannot work with; one line."""


class Delivery(Enum):
    """The guarantee of a sink."""

    EXACTLY_ONCE = "exactly-once"
    EXACTLY_ONCE_BOUNDED = "exactly-once-bounded"
    AT_LEAST_ONCE = "at-least-once"


class SinkOptions(BaseModel):
    """The options of one sink; times in ms, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    bootstrap_servers: str = Field(alias="kafka.bootstrap.servers")
    topic: str | None = Field(None, alias="topic", min_length=1)
    sink_id: str = Field("", alias="sinkId", max_length=MAX_SINK_ID)
    """The sinkId, else the query's name; it may be empty for at-least-once only."""
    delivery: Delivery = Field(Delivery.EXACTLY_ONCE, alias="delivery")
    compression: Compression = Field(Compression.NONE, alias="compression")
    transaction_timeout_ms: int | None = Field(None, alias="transactionTimeout", gt=0, lt=2**31)
    """None for the broker's maximum, `transaction.max.timeout.ms`."""
    take_over_from: str | None = Field(None, alias="takeOverFrom", min_length=1)
    batch_number: int | None = Field(None, alias="batchId", ge=0, lt=2**63)
    """The number of a write without a stream: a second write with this number changes nothing."""
    checkpoint: str | None = Field(None, alias="checkpointLocation")
    client_id: str = Field("barnabas-spark", alias="kafka.client.id")
    api_timeout_ms: int = Field(30_000, alias="kafka.default.api.timeout.ms", gt=0, lt=2**31)
    request_timeout_ms: int = Field(30_000, alias="kafka.request.timeout.ms", gt=0, lt=2**31)
    delivery_timeout_ms: int = Field(120_000, alias="kafka.delivery.timeout.ms", gt=0, lt=2**31)
    batch_size: int = Field(512 * 1024, alias="kafka.batch.size", gt=0, lt=2**31)
    check_cluster: bool = Field(True, alias="kafka.metadata.cluster.check.enable")
    buffer_size: int = Field(32 * 1024 * 1024, alias="kafka.buffer.memory", gt=0, lt=2**40)

    security: Security = OPEN

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_addresses(cls, value: str) -> str:
        for part in value.split(","):
            parse_address(part.strip())
        return value

    @field_validator("sink_id")
    @classmethod
    def _check_sink_id(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9_-]+", value):
            # With a dot the ids of sink `a.b` would stand under the prefix of sink `a`.
            raise ValueError("use letters, digits, _ and - only (it names a topic)")
        return value

    @field_validator("compression", mode="before")
    @classmethod
    def _parse_codec(cls, value: Any) -> Any:
        codecs = {codec.name.lower(): codec for codec in Compression}
        if isinstance(value, str):
            if value.lower() not in codecs:
                raise ValueError(f"choose one of {', '.join(codecs)}")
            return codecs[value.lower()]
        return value

    @field_validator("check_cluster", mode="before")
    @classmethod
    def _parse_boolean(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = value.strip().lower()
            if value not in ("true", "false"):
                raise ValueError("give true or false")
        return value

    @field_validator("transaction_timeout_ms", mode="before")
    @classmethod
    def _parse_duration(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError("give a number with a unit, such as 90 s, 15 m or 900000 ms")
        return int(found[1]) * _UNITS[found[2]]

    @model_validator(mode="after")
    def _agree(self) -> "SinkOptions":
        if self.delivery is not Delivery.AT_LEAST_ONCE:
            if not self.sink_id:
                raise ValueError(
                    "the sink has no name: give the option sinkId, or the query a name (queryName)"
                )
            return self
        for name, value in (
            ("transactionTimeout", self.transaction_timeout_ms),
            ("takeOverFrom", self.take_over_from),
            ("batchId", self.batch_number),
        ):
            if value is not None:
                raise ValueError(
                    f"option {name} has no effect with delivery=at-least-once: remove one of both"
                )
        return self

    @property
    def is_transactional(self) -> bool:
        """Whether the rows of a batch appear together, by transactions."""
        return self.delivery is not Delivery.AT_LEAST_ONCE


_NAMES: Final = {
    field.alias.lower(): field.alias for field in SinkOptions.model_fields.values() if field.alias
}
_ALIASES: Final = {
    "kafka.compression.type": "compression",
    "kafka.transaction.timeout.ms": "transactiontimeout",
}
"""Keys of Kafka's producer that have an option of the sink in their place."""
_FIXED: Final = {
    "kafka.acks": ({"all", "-1"}, "the sink writes with acks=all"),
    "kafka.enable.idempotence": ({"true"}, "the sink is idempotent"),
}
"""Keys of Kafka's producer with the only values that the sink works with."""
_REFUSED: Final = {
    "kafka.transactional.id": "the sink makes its ids from sinkId: use sinkId instead",
    "kafka.key.serializer": "the sink writes bytes and strings: remove it",
    "kafka.value.serializer": "the sink writes bytes and strings: remove it",
    "asyncprogresstrackingenabled": "a batch could change after a crash: remove it",
}


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse the options that Spark passes to a data source. Raises SinkOptionsError."""
    try:
        security, rest = split_security(options)
    except ConfigError as error:
        raise SinkOptionsError(str(error)) from None
    given = {name.lower(): value for name, value in rest.items()}
    query = given.pop(QUERY, None)
    chosen: dict[str, str] = {}
    for name, value in given.items():
        _refuse(name, value)
        if name in _FIXED:
            continue
        known = _ALIASES.get(name, name)
        if known not in _NAMES:
            raise SinkOptionsError(f"option {name} is unknown{_nearest(name)}")
        if chosen.setdefault(_NAMES[known], value) != value:
            raise SinkOptionsError(f"{name} contradicts option {_NAMES[known]}: remove one of them")
    if query and "sinkId" not in chosen:
        chosen["sinkId"] = query
    if "kafka.bootstrap.servers" not in chosen:
        raise SinkOptionsError("option kafka.bootstrap.servers is missing: give HOST:PORT")
    if streaming and "batchId" in chosen:
        raise SinkOptionsError("option batchId is for writes without a stream: remove it")
    try:
        return SinkOptions.model_validate({**chosen, "security": security})
    except ValidationError as error:
        raise SinkOptionsError(_first_of(error)) from None


def _refuse(name: str, value: str) -> None:
    """Raise SinkOptionsError for an option of Kafka or Spark that the sink cannot honour."""
    if name in _REFUSED:
        raise SinkOptionsError(f"option {name} cannot be used: {_REFUSED[name]}")
    if name in _FIXED:
        allowed, reason = _FIXED[name]
        if value.strip().lower() not in allowed:
            raise SinkOptionsError(f"option {name}={value} cannot be used: {reason}, remove it")


def _nearest(name: str) -> str:
    known = [*_NAMES, *_ALIASES, *_FIXED]
    found = closest(name, known, 0.7)
    return ": remove it" if found is None else f": did you mean {_NAMES.get(found, found)}?"


def _first_of(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return text
    return f"option {first['loc'][0]}={first['input']} is wrong: {text}"


_BYTES = ("string", "binary")
COLUMNS: Final = {
    "topic": ("string",),
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that the sink reads, each with its types as Spark writes them."""


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Check the names and types of a DataFrame's columns, in Spark's simple strings.

    Further columns are ignored, as by Spark's own Kafka sink. Raises SinkOptionsError.
    """
    if "value" not in columns:
        raise SinkOptionsError("column value is missing: select the bytes to write as value")
    if topic is None and "topic" not in columns:
        raise SinkOptionsError("no topic is given: set the option topic, or add a column topic")
    for name, allowed in COLUMNS.items():
        found = columns.get(name)
        if found is not None and found not in allowed:
            raise SinkOptionsError(
                f"column {name} has the type {found}: cast it to {' or '.join(allowed)}"
            )
