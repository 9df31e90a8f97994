"""Tables of keys: a table is a class of `Key`s; its instances hold one value per key."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self

from barnabas.config.key import ConfigError, Key
from barnabas.config.spelling import asking, closest


class Table:
    """The base of every table. Instances are immutable and compared by value."""

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
        """Set values by attribute, without checks; other keys get their defaults."""
        attributes = {key.attribute: key.default for key in self.KEYS.values()}
        if unknown := values.keys() - attributes.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        self.__dict__.update(attributes, **values)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> dict[str, object]:
        """Parse texts by key into values by attribute; raise ConfigError for an invalid one."""
        return {
            cls.KEYS[name].attribute: cls.KEYS[name].parse(text) for name, text in texts.items()
        }

    @classmethod
    def unknown(cls, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not keys of this table, sorted."""
        return sorted(name for name in names if name not in cls.KEYS)

    def replace(self, **values: object) -> Self:
        """Return a copy with other values of some attributes."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    def text(self, name: str) -> str | None:
        """Return the value of a key (by Kafka's name) as DescribeConfigs shows it."""
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


def require_known(
    table: type[Table],
    names: Collection[str],
    what: str,
    synonyms: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise ConfigError, with Kafka's text, if one of `names` is not a key of the table.

    `synonyms` are names of other tables for its keys.
    Of more names than there are keys it is the first unknown one, which is found without sorting
    100,000 of them.
    """
    many = len(names) > len(table.KEYS)
    unknown = (name for name in names if name not in table.KEYS) if many else table.unknown(names)
    for name in unknown:
        meant = synonyms.get(name) or closest(name, table.KEYS)
        raise ConfigError(f"Unknown {what} config name: {name}{asking(meant)}")
