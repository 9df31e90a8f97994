"""The descriptions of configurations for DescribeConfigs: values, their sources and synonyms."""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from barnabas.config.broker import BrokerConfig, resolve_aliases
from barnabas.config.dynamic import DynamicConfig, inert
from barnabas.config.group_keys import GroupConfig
from barnabas.config.inert_keys import InertKeys
from barnabas.config.key import HIDDEN, Key, Type, Update
from barnabas.config.properties import property_line
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig


class Source(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """One of the sources that could set a key; the first one takes effect."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One key of one resource. `value` is None if the key is unset."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: Type
    documentation: str
    sensitive: bool = False


_GROUPS_OF_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: group for group in _GROUPS_OF_SYNONYMS for name in group},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def describe_broker(config: DynamicConfig) -> list[Entry]:
    """Return every key of this broker, sorted by name."""
    entries = []
    own = config.current.listener_values
    for name in sorted({*BrokerConfig.KEYS, *own, *inert(config.stored)}):
        key = BrokerConfig.key_of(name)
        names = (name, key.name) if name in own else _SYNONYMS.get(name, (name,))
        synonyms = tuple(_broker_synonyms(key, names, config))
        if name in InertKeys.KEYS:
            value = key.text(key.parse(config.stored[name]))
        else:
            value = key.text(own[name]) if name in own else config.current.text(name)
        sensitive = key.type is Type.PASSWORD
        entries.append(
            Entry(
                name=name,
                value=None if sensitive else value,
                source=_source(synonyms),
                read_only=key.update is Update.READ_ONLY,
                synonyms=synonyms,
                type=key.type,
                documentation=key.doc,
                sensitive=sensitive,
            )
        )
    return entries


def effective_config(
    config: BrokerConfig, sources: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of a properties file, with the strongest source first.

    `config` is made of the keys of `sources`, of which the later ones win. Passwords and keys that
    are unset are comments, so that the file can be used.
    """
    for warning in config.warnings:
        yield f"# {warning}"
    origins = {name: source for source, keys in sources.items() for name in resolve_aliases(keys)}
    found: dict[str, list[Entry]] = {
        source: [] for source in (*reversed(list(sources)), "defaults")
    }
    for entry in describe_broker(DynamicConfig(config)):
        found[origins.get(entry.name, "defaults")].append(entry)
    for source, entries in found.items():
        if entries:
            yield f"# {source}"
            yield from map(_line, entries)
            yield ""


def _line(entry: Entry) -> str:
    if entry.sensitive and entry.synonyms:
        return f"#{entry.name}={HIDDEN}"
    return f"#{entry.name}=" if entry.value is None else property_line(entry.name, entry.value)


def describe_cluster_defaults(config: DynamicConfig) -> list[Entry]:
    """Return the keys set for all brokers with AlterConfigs (the resource with the empty name)."""
    return [
        Entry(
            name=name,
            value=value,
            source=Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
            read_only=False,
            synonyms=(Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),),
            type=BrokerConfig.key_of(name).type,
            documentation=BrokerConfig.key_of(name).doc,
        )
        for name, value in sorted(config.cluster_defaults.items())
    ]


def describe_topic(overrides: Mapping[str, str], config: DynamicConfig) -> list[Entry]:
    """Return every key of a topic with these overrides, sorted by name."""
    topic = TopicConfig.resolve(overrides, config.current)
    entries = []
    for name, key in TopicConfig.KEYS.items():
        synonyms = tuple(_topic_synonyms(name, topic, overrides, config))
        entries.append(_overridable(key, topic.text(name), synonyms))
    return entries


def describe_group(overrides: Mapping[str, str], config: DynamicConfig) -> list[Entry]:
    """Return every key of a group with these overrides, sorted by name.

    A value beyond the broker's bounds is shown as the bound, which takes effect.
    """
    group = GroupConfig.resolve(overrides, config.current)
    entries = []
    for name, key in GroupConfig.KEYS.items():
        broker_name = f"group.{name}"
        synonyms = tuple(_broker_synonyms(BrokerConfig.KEYS[broker_name], (broker_name,), config))
        if name in overrides:
            synonyms = (Synonym(name, group.text(name), Source.GROUP_CONFIG), *synonyms)
        entries.append(_overridable(key, group.text(name), synonyms))
    return entries


def _overridable(key: Key[Any], value: str | None, synonyms: tuple[Synonym, ...]) -> Entry:
    """Return the entry of a key that the resource itself may override."""
    return Entry(
        name=key.name,
        value=value,
        source=_source(synonyms),
        read_only=False,
        synonyms=synonyms,
        type=key.type,
        documentation=key.doc,
    )


def _topic_synonyms(
    name: str, topic: TopicConfig, overrides: Mapping[str, str], config: DynamicConfig
) -> Iterator[Synonym]:
    if name in overrides:
        yield Synonym(name, topic.text(name), Source.DYNAMIC_TOPIC_CONFIG)
    if names := BROKER_SYNONYMS.get(name):
        yield from _broker_synonyms(BrokerConfig.KEYS[names[0]], names, config)


def _broker_synonyms(
    key: Key[Any], names: Sequence[str], config: DynamicConfig
) -> Iterator[Synonym]:
    """Yield synonyms by layer, the most precise key first in each; one default, as in Kafka."""
    layers = (
        (Source.DYNAMIC_BROKER_CONFIG, config.overrides),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, config.cluster_defaults),
        (Source.STATIC_BROKER_CONFIG, config.static.given),
    )
    for source, texts in layers:
        for name in names:
            if name in texts:
                yield Synonym(name, None if key.type is Type.PASSWORD else texts[name], source)
    default = key.text(key.default)
    if default is not None:
        yield Synonym(key.name, default, Source.DEFAULT_CONFIG)


def _source(synonyms: tuple[Synonym, ...]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
