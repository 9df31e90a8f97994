"""The JSON answer of `barnabas console`."""

from typing import Any, Final

from barnabas.cli.answers.model import Answer


class ConsoleAddress(Answer):
    """A console that serves."""

    url: str


ANSWERS: Final[dict[str, Any]] = {"console": ConsoleAddress}
