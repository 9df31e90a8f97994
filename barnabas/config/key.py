"""One configuration key: name, type, default, range, update mode and documentation.

A table of keys is a class, and a key is a descriptor in it:

    class TopicConfig(Table):
        segment_bytes = integer(1 << 30, "Largest size of ...", at_least=1 << 20)

Kafka's name of a key is the attribute with dots for underscores. On the class an attribute is the
`Key`; on an instance it is the value, a plain entry of the instance's dictionary, so reading it on
a hot path costs the same as any attribute.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Generic, Self, TypeVar, overload

from barnabas.config.references import unreplaced

T = TypeVar("T")

INT_MAX: Final = (1 << 31) - 1
ARRAY_MAX: Final = INT_MAX - 8
"""The length of the longest array of Java, which limits the largest record."""
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}")
"""Python reads no numbers of more than 4300 digits."""
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Type(IntEnum):
    """The type of a configuration value, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


HIDDEN = "[hidden]"
"""The text shown in place of a password, as in Kafka."""


class Update(Enum):
    """The update mode of a broker key, in the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(Exception):
    """An invalid configuration. Its text is shown to admin clients and operators."""

    @classmethod
    def invalid(cls, key: str, value: object, reason: str) -> Self:
        """Return the error for an invalid value, with Kafka's text."""
        return cls(f"Invalid value {java_text(value)} for configuration {key}: {reason}")


_RANGE = {
    Type.INT: (-INT_MAX - 1, INT_MAX),
    Type.SHORT: (-(1 << 15), (1 << 15) - 1),
    Type.LONG: (-LONG_MAX - 1, LONG_MAX),
}

Check = Callable[[str, Any], None]
"""A function of a key's name and a value of its type; it raises ConfigError for invalid values."""


@dataclass(eq=False, slots=True)
class Key(Generic[T]):
    """The definition of one key. The table that contains it sets `name`."""

    type: Type
    default: T
    doc: str
    update: Update
    check: Check | None = None
    valid: str = ""
    distinct: bool = False
    """Whether the value is a list in which only the first of equal items counts."""
    name: str = ""
    attribute: str = ""

    def __set_name__(self, owner: object, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, table: None, owner: object) -> Self: ...
    @overload
    def __get__(self, table: object, owner: object) -> T: ...
    def __get__(self, table: object | None, owner: object) -> Self | T:
        return self if table is None else self.default

    def parse(self, text: str) -> T:
        """Parse a text; raise ConfigError if it is malformed or out of range."""
        if found := unreplaced(text, secret=self.type is Type.PASSWORD):
            raise ConfigError(f"{self.name} has {found}")
        value = _PARSERS[self.type](self.name, text.strip(), self.type)
        if self.distinct:
            value = tuple(dict.fromkeys(value))
        if self.check is not None:
            self.check(self.name, value)
        return value  # type: ignore[no-any-return]

    def text(self, value: T) -> str | None:
        """Return a value as text, the inverse of `parse` except for passwords, which are hidden."""
        if value is None:
            return None
        if self.type is Type.PASSWORD:
            return HIDDEN
        if isinstance(value, tuple):
            return ",".join(value)
        return java_text(value)


def java_text(value: object) -> str:
    """Return a value as Java prints it, as in Kafka's tools and error texts."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return "[" + ", ".join(value) + "]"
        case _:
            return str(value)


def _java_double(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = next(
        text for digits in range(1, 18) if float(text := f"{value:.{digits}e}") == value
    )
    mantissa, exponent = shortest.split("e")
    return f"{mantissa}E{int(exponent)}"


def _parse_boolean(key: str, text: str, _: Type) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError.invalid(key, text, "Expected value to be either true or false")
    return text.lower() == "true"


def _parse_whole(key: str, text: str, kind: Type) -> int:
    low, high = _RANGE[kind]
    if not _WHOLE_NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise ConfigError.invalid(key, text, f"Not a number of type {kind.name}")
    return int(text)


def _parse_double(key: str, text: str, kind: Type) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ConfigError.invalid(key, text, f"Not a number of type {kind.name}")
    return float(text)


def _parse_list(_key: str, text: str, _: Type) -> tuple[str, ...]:
    return tuple(map(str.strip, text.split(","))) if text else ()


def _parse_string(_key: str, text: str, _: Type) -> str:
    return text


_PARSERS: dict[Type, Callable[[str, str, Type], Any]] = {
    Type.BOOLEAN: _parse_boolean,
    Type.STRING: _parse_string,
    Type.INT: _parse_whole,
    Type.SHORT: _parse_whole,
    Type.LONG: _parse_whole,
    Type.DOUBLE: _parse_double,
    Type.LIST: _parse_list,
    Type.PASSWORD: _parse_string,
}
