"""Tables of keys: a class of `Key`s, and instances that hold one value for each of them."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from barnabas.config.key import ConfigError, Key


class Table:
    """Base of every table. Instances are immutable; equal values make equal instances."""

    KEYS: ClassVar[Mapping[str, Key[Any]]] = {}
    """Every key of the table under Kafka's name, in alphabetical order."""

    def __init_subclass__(cls) -> None:
        keys = {
            key.name: key
            for base in cls.__mro__
            for key in vars(base).values()
            if isinstance(key, Key)
        }
        cls.KEYS = dict(sorted(keys.items()))

    def __init__(self, **values: object) -> None:
        """Values by attribute, each of its key's type and trusted; the rest are the defaults."""
        attributes = {key.attribute: key.default for key in self.KEYS.values()}
        if unknown := values.keys() - attributes.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        self.__dict__.update(attributes, **values)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> dict[str, object]:
        """Checked values by attribute for texts by key; ConfigError names the first bad one."""
        return {
            cls.KEYS[name].attribute: cls.KEYS[name].parse(text) for name, text in texts.items()
        }

    @classmethod
    def unknown(cls, names: Iterable[str]) -> list[str]:
        """Those of `names` that are no key of this table, sorted."""
        return sorted(name for name in names if name not in cls.KEYS)

    def replace(self, **values: object) -> Self:
        """A copy in which some values, given by attribute, are others."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    def text(self, name: str) -> str | None:
        """The value of a key, given by Kafka's name, as DescribeConfigs shows it."""
        key = self.KEYS[name]
        return key.text(self.__dict__[key.attribute])

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {attribute}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __repr__(self) -> str:
        changed = (
            f"{key.name}={self.text(key.name)}"
            for key in self.KEYS.values()
            if self.__dict__[key.attribute] != key.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def require_known(table: type[Table], names: Iterable[str], what: str) -> None:
    """ConfigError as Kafka words it where one of `names` is no key of the table."""
    for name in table.unknown(names):
        raise ConfigError(f"Unknown {what} config name: {name}")
