"""The base of the models of the JSON answers."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, core_schema


class Answer(BaseModel):
    """A JSON object that a command prints.

    The docstring of a field is its description in the schema; a field with a unit has the unit in
    its name.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class OneOf:
    """The values of a text, where an enumeration has them: `Annotated[str, OneOf(...)]`."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = list(values)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema(self._values)
