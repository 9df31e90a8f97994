"""The answers of `barnabas log-dirs`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class LogDir(Answer):
    """A log directory of a broker."""

    broker: int
    log_dir: str
    state: str
    """`online`, or the error."""
    replicas: int
    """The number of replicas in it."""
    bytes: int
    """The size of these replicas."""
    total_bytes: int
    """The size of its file system; -1 is unknown."""
    usable_bytes: int
    """The free space of its file system; -1 is unknown."""


@dataclass(frozen=True, slots=True)
class Replica(Answer):
    """A replica of a partition in a log directory."""

    broker: int
    topic: str
    partition: int
    log_dir: str
    state: Literal["here", "moving here"]
    bytes: int
    lag: int
    """Offsets that the replica is behind the high watermark, or a moving one behind the other."""


@dataclass(frozen=True, slots=True)
class Move(Answer):
    """The move of a replica to another log directory."""

    topic: str
    partition: int
    result: str
    """`moving`, `there` with --wait, or the error."""


ANSWERS: Final[dict[str, Any]] = {
    "log-dirs describe": list[LogDir] | list[Replica],
    "log-dirs move": list[Move],
}
