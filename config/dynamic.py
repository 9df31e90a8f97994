"""The broker's current configuration: static properties, and the dynamic values of AlterConfigs.

In order of precedence: overrides of this broker, defaults of the cluster, the properties that the
broker was started with, the defaults of the keys.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError, Update
from barnabas.config.listeners import parse_connection_overrides

Subscriber = Callable[[BrokerConfig], None]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class LocksOut(ConfigError):
    """Values with which no client could reach the broker to change them back."""


class DynamicConfig:
    """The current `BrokerConfig`; subscribers are called after every change."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.cluster_defaults = _NOTHING
        self.overrides = _NOTHING
        self._subscribers: list[Subscriber] = []

    def now(self) -> BrokerConfig:
        """Return the current configuration; to be passed as a function."""
        return self.current

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the configuration after each change of a value."""
        self._subscribers.append(subscriber)

    def apply(self, *, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        """Apply both layers as they are stored now; a ConfigError changes nothing."""
        changed = overlay(self.static, cluster_defaults, overrides)
        self.cluster_defaults = MappingProxyType(dict(cluster_defaults))
        self.overrides = MappingProxyType(dict(overrides))
        if changed != self.current:
            self.current = changed
            for subscriber in self._subscribers:
                subscriber(changed)


def overlay(
    static: BrokerConfig, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> BrokerConfig:
    """Return the configuration of a broker with two layers of dynamic values."""
    texts = {**cluster_defaults, **overrides}
    _require_own(static, cluster_defaults, overrides)
    for name in static.keys_without_effect(texts):
        raise ConfigError(f"Unknown broker config name: {name}")
    _require_dynamic(texts)
    config = static.overlay(texts)
    config.validate()
    _refuse_lockout(config, texts)
    return config


def _refuse_lockout(config: BrokerConfig, texts: Mapping[str, str]) -> None:
    """Raise LocksOut if one of the dynamic values keeps all clients out; a file may have it."""
    for name, text in texts.items():
        if BrokerConfig.key_of(name) is BrokerConfig.max_connections and int(text) == 0:
            raise LocksOut(
                f"With {name}=0 no client could connect to change it back. Set it to 1 or more; "
                "to shut clients out, stop the broker or put it into server.properties."
            )
    overrides = parse_connection_overrides(
        "max.connections.per.ip.overrides", config.max_connections_per_ip_overrides
    )
    given = texts.keys() & {"max.connections.per.ip", "max.connections.per.ip.overrides"}
    if given and not (config.max_connections_per_ip or any(overrides.values())):
        raise LocksOut(
            "With max.connections.per.ip=0, and no address above 0 in "
            "max.connections.per.ip.overrides, no client could connect to change it back. Give "
            "one address a limit of 1 or more, such as 127.0.0.1:10."
        )


def _require_dynamic(names: Mapping[str, str]) -> None:
    fixed = [name for name in names if BrokerConfig.key_of(name).update is Update.READ_ONLY]
    if fixed:
        raise ConfigError(
            f"Cannot update these configs dynamically: Set({', '.join(sorted(fixed))})"
        )


def _require_own(
    static: BrokerConfig, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> None:
    """Raise ConfigError for keys of single listeners that are set for all or for the cluster."""
    for layer, allowed in ((cluster_defaults, False), (overrides, True)):
        for name in sorted(layer):
            if name in static.keys_without_effect([name]):
                continue
            if BrokerConfig.key_of(name).update is not Update.PER_BROKER:
                continue
            if name in BrokerConfig.KEYS:
                raise ConfigError(
                    "These security configs can be dynamically updated only per-listener using "
                    f"the listener prefix: Set({name})"
                )
            if not allowed:
                raise ConfigError(
                    f"Cannot update these configs at default cluster level: Set({name})"
                )
