"""The base of the models of the JSON answers."""

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A JSON object that a command prints.

    The docstring of a field is its description in the schema; a field with a unit has the unit in
    its name.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)
