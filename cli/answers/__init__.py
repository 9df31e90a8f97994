"""The JSON answers of the commands, as pydantic models.

Pydantic costs a tenth of a second: this package is imported only for `--json` and `schema`.
"""

from typing import Any, Final

from pydantic import TypeAdapter

from barnabas.cli.answers import topics

ANSWERS: Final[dict[str, Any]] = {**topics.ANSWERS}
"""The type of each command's answer, by the command's name without `barnabas`.

A command that prints one object a line has the type of a line.
"""


def to_json(command: str, answer: Any, *, indent: int | None = 2) -> str:
    """Return the answer of a command as JSON; raises ValidationError if it is not of its type."""
    if command not in ANSWERS:  # TODO: goes once every command has a type
        import json

        return json.dumps(answer, indent=indent)
    adapter: TypeAdapter[Any] = TypeAdapter(ANSWERS[command])
    return adapter.dump_json(adapter.validate_python(answer), indent=indent).decode()


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a command's answer."""
    return TypeAdapter(ANSWERS[command]).json_schema(mode="serialization")
