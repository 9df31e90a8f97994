"""The JSON answers of `barnabas debug`."""

from typing import Any, Final

from barnabas.cli.answers.model import Answer


class Part(Answer):
    """A file in a bundle."""

    name: str
    bytes: int


class WrittenBundle(Answer):
    """A bundle that was written."""

    file: str
    parts: list[Part]
    problems: list[str]
    """The parts that are missing, and why."""


ANSWERS: Final[dict[str, Any]] = {"debug bundle": WrittenBundle}
