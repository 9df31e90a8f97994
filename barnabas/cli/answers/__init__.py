"""The JSON answers of the commands, as pydantic models.

Pydantic costs a tenth of a second: this package is imported only for `--json` and `schema`.
"""

import json
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from barnabas.cli.answers import (
    acls,
    benchmark,
    cluster,
    configs,
    console,
    debug,
    dump_log,
    groups,
    log_dirs,
    partitions,
    pipeline,
    profile,
    quotas,
    records,
    tokens,
    topics,
    transactions,
    users,
    verify,
)
from barnabas.cli.tables import escape_json
from barnabas.config.faults import first_fault

ANSWERS: Final[dict[str, Any]] = {
    **topics.ANSWERS,
    **groups.ANSWERS,
    **cluster.ANSWERS,
    **configs.ANSWERS,
    **console.ANSWERS,
    **log_dirs.ANSWERS,
    **profile.ANSWERS,
    **records.ANSWERS,
    **dump_log.ANSWERS,
    **benchmark.ANSWERS,
    **partitions.ANSWERS,
    **transactions.ANSWERS,
    **acls.ANSWERS,
    **quotas.ANSWERS,
    **users.ANSWERS,
    **tokens.ANSWERS,
    **verify.ANSWERS,
    **debug.ANSWERS,
    **pipeline.ANSWERS,
}
"""The type of each command's answer, by the command's name without `barnabas`.

A command that prints one object a line has the type of a line.
"""


def to_json(command: str, answer: Any, *, indent: int | None = 2) -> str:
    """Return the answer of a command as JSON; raises TypeError if it is not of its type."""
    adapter = _adapter(command)
    try:
        valid = adapter.validate_python(answer)
    except ValidationError as error:
        text = f"the answer of {command} is not as its schema says: {first_fault(error)}"
        raise TypeError(text) from error
    try:
        text = adapter.dump_json(valid, indent=indent).decode()
    except PydanticSerializationError:
        # The name of a file has a byte that is not UTF-8: a surrogate in Python, escaped in JSON.
        text = json.dumps(
            adapter.dump_python(valid, mode="json"),
            indent=indent,
            separators=(",", ":" if indent is None else ": "),
        )
    return escape_json(text)


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a command's answer."""
    return _adapter(command).json_schema(mode="serialization")


@cache
def _adapter(command: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[command])
