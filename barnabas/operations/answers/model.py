"""The base of the answers of the commands."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from pydantic import ConfigDict
    from pydantic_core import CoreSchema


class Answer:
    """A row of a table, or the JSON object that a command prints in its place: a dataclass.

    The docstring of a field is its description in the schema; a field with a unit has the unit in
    its name.
    """

    __slots__ = ()
    __pydantic_config__: "ClassVar[ConfigDict]" = {
        "extra": "forbid",
        "revalidate_instances": "always",
    }
    """The checks before the answer is printed as JSON: all fields have their types."""


def fields_of(answer: Answer) -> dict[str, Any]:
    """Return the fields of an answer by their names; answers in them stay answers."""
    return {name: getattr(answer, name) for name in names_of(type(answer))}


def names_of(kind: type[Answer]) -> list[str]:
    """Return the names of the fields of an answer."""
    return [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]


class OneOf:
    """The values of a text, where an enumeration has them: `Annotated[str, OneOf(...)]`."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values: Final = list(values)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> "CoreSchema":
        # Imported here: the table of the same answer needs no pydantic.
        from pydantic_core import core_schema

        return core_schema.literal_schema(self._values)
