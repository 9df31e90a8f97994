"""The answers of `barnabas debug`."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Part(Answer):
    """A file in a bundle."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class WrittenBundle(Answer):
    """A bundle that was written."""

    file: str
    parts: list[Part]
    problems: list[str]
    """The parts that are missing, and why."""


ANSWERS: Final[dict[str, Any]] = {"debug bundle": WrittenBundle}
