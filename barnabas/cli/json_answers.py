"""The answers of the commands as JSON, and their schemas.

Pydantic costs a tenth of a second: this module is imported only for `--json` and `schema`.
"""

import ast
import dataclasses
import inspect
import json
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError
from pydantic_core.core_schema import DataclassSchema

from barnabas.cli.tables import escape_json
from barnabas.client.plan_file import PlanFile
from barnabas.config.faults import first_fault
from barnabas.operations.answers import (
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
from barnabas.pipeline.monitor.progress import Progress, Status

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
    "partitions plan": PlanFile,
    **partitions.ANSWERS,
    **transactions.ANSWERS,
    **acls.ANSWERS,
    **quotas.ANSWERS,
    **users.ANSWERS,
    **tokens.ANSWERS,
    **verify.ANSWERS,
    **debug.ANSWERS,
    "pipeline run": Progress,
    "pipeline status": Status,
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
    return _adapter(command).json_schema(mode="serialization", schema_generator=_Documented)


@cache
def _adapter(command: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[command])


class _Documented(GenerateJsonSchema):
    """The schemas of dataclasses with the docstrings of their fields, inherited ones included."""

    def dataclass_schema(self, schema: DataclassSchema) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        for each in reversed(schema["cls"].__mro__):
            for name, text in _docstrings(each).items():
                made["properties"][name]["description"] = text
        made["additionalProperties"] = False
        for field in dataclasses.fields(schema["cls"]):
            if field.default_factory is not dataclasses.MISSING:
                made["properties"][field.name]["default"] = field.default_factory()
        return made


@cache
def _docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields that a dataclass declares itself."""
    if "__dataclass_fields__" not in vars(cls):
        return {}
    (declared,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(str(text.value.value))
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
