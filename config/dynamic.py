"""The broker's configuration while it runs: what was given, and what AlterConfigs laid over it.

From strong to weak: overrides of this broker, defaults of the cluster, the properties the broker
was started with, the defaults of the keys.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError, Update

Follower = Callable[[BrokerConfig], None]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class DynamicConfig:
    """Holds the current `BrokerConfig`; those who follow it are told of each change."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.cluster_defaults = _NOTHING
        self.overrides = _NOTHING
        self._followers: list[Follower] = []

    def now(self) -> BrokerConfig:
        """The configuration that holds, for whoever asks again and again."""
        return self.current

    def follow(self, follower: Follower) -> None:
        """Call `follower` with the configuration after every change that makes a difference."""
        self._followers.append(follower)

    def apply(self, *, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        """Take over both layers as they are stored now; ConfigError changes nothing."""
        changed = overlaid(self.static, cluster_defaults, overrides)
        self.cluster_defaults = MappingProxyType(dict(cluster_defaults))
        self.overrides = MappingProxyType(dict(overrides))
        if changed != self.current:
            self.current = changed
            for follower in self._followers:
                follower(changed)


def overlaid(
    static: BrokerConfig, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> BrokerConfig:
    """The configuration of a broker under two layers of dynamic values."""
    texts = {**cluster_defaults, **overrides}
    for name in static.without_effect(texts):
        raise ConfigError(f"Unknown broker config name: {name}")
    _require_dynamic(texts)
    config = static.overlaid(texts)
    config.validate()
    return config


def _require_dynamic(names: Mapping[str, str]) -> None:
    fixed = [name for name in names if BrokerConfig.key_of(name).update is Update.READ_ONLY]
    if fixed:
        raise ConfigError(
            f"Cannot update these configs dynamically: Set({', '.join(sorted(fixed))})"
        )
