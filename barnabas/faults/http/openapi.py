"""The OpenAPI document of operations, from their paths and models."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import barnabas
from barnabas.faults.http import models
from barnabas.faults.http.operations import Operation

_REF: Final = "#/components/schemas/"
_INFO: Final = {
    "title": "Barnabas: faults",
    "version": barnabas.__version__,
    "description": "Faults on the requests, links, clocks and processes of brokers.",
}
_TOKEN: Final = {"token": {"type": "http", "scheme": "bearer"}}
Kind = tuple[type[BaseModel], Literal["validation", "serialization"]]


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds: set[Kind] = {(models.Error, "serialization")}
    for each in operations:
        kinds.add((each.returns, "serialization"))
        if _has_body(each):
            kinds.add((each.takes, "validation"))
    ordered = sorted(kinds, key=lambda each: (each[0].__name__, each[1]))
    names, schemas = models_json_schema(ordered, ref_template=f"{_REF}{{model}}")
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = _operation(each, names)
        paths.setdefault(each.path, {})[each.method.lower()] = described
    components = {"schemas": schemas["$defs"], "securitySchemes": _TOKEN}
    return {"openapi": "3.1.0", "info": _INFO, "paths": paths, "components": components}


def _operation(operation: Operation, names: dict[Any, Any]) -> dict[str, Any]:
    words = f"{operation.method.lower()}{operation.path.removeprefix('/v1')}"
    error = names[models.Error, "serialization"]
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": re.sub(r"\W+", "_", words).strip("_"),
        "parameters": _parameters(operation),
        "responses": {
            "200": {
                "description": "The effect has happened.",
                "content": _content(names[operation.returns, "serialization"]),
            },
            "default": {"description": "An error.", "content": _content(error)},
        },
    }
    if operation.method == "POST":
        described["security"] = [{"token": []}]
    if _has_body(operation):
        content = _content(names[operation.takes, "validation"])
        described["requestBody"] = {"required": True, "content": content}
    return described


def _has_body(operation: Operation) -> bool:
    return operation.method == "POST" and operation.takes is not models.Nothing


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    """Return the parameters of the path and of the query."""
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer"}}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    if issubclass(operation.takes, models.Query):
        schema = operation.takes.model_json_schema()
        for name, each in schema["properties"].items():
            required = name in schema.get("required", ())
            found.append({"name": name, "in": "query", "required": required, "schema": each})
    return found
