"""The answer of `barnabas console`."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class ConsoleAddress(Answer):
    """A console that serves."""

    url: str


ANSWERS: Final[dict[str, Any]] = {"console": ConsoleAddress}
