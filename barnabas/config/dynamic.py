"""The broker's current configuration: static properties, and the dynamic values of AlterConfigs.

In order of precedence: overrides of this broker, defaults of the cluster, the properties that the
broker was started with, the defaults of the keys.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NoReturn

from barnabas.config.broker import BrokerConfig, meant_by
from barnabas.config.inert_keys import InertKeys, is_of_kafka
from barnabas.config.key import ConfigError, Update, java_text
from barnabas.config.listeners import parse_connection_overrides, parse_listener_key
from barnabas.config.sasl_keys import SaslKeys
from barnabas.config.spelling import asking
from barnabas.config.tls_keys import TlsKeys

Subscriber = Callable[[BrokerConfig], None]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_FEW: Final = 500
"""Names that are judged together, about 2 ms. More of them are first searched for an unknown one,
which is found soon, because the names that exist are not many more."""


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

    @property
    def stored(self) -> dict[str, str]:
        """The dynamic values of this broker, its own and those of the cluster."""
        return {**self.cluster_defaults, **self.overrides}

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
    names = iter(texts)
    while len(texts) > _FEW and (some := list(islice(names, _FEW))):
        _require_known(static.keys_without_effect(some))
    _require_own(static, cluster_defaults, overrides)
    inert_names = static.keys_without_effect(texts)
    _require_known(inert_names)
    for name in inert_names:
        InertKeys.KEYS[name].parse(texts[name])
    _require_dynamic(texts)
    config = static.overlay(texts)
    _refuse_lockout(config, texts)
    config.validate()
    return config


def _refuse_lockout(config: BrokerConfig, texts: Mapping[str, str]) -> None:
    """Raise LocksOut if one of the dynamic values keeps all clients out, also of one listener."""
    for name, text in texts.items():
        if BrokerConfig.key_of(name) is BrokerConfig.max_connections and int(text) == 0:
            raise LocksOut(
                f"With {name}=0 no client could connect to change it back. Set it to 1 or more; "
                "to shut clients out, stop the broker, or set it for one listener in "
                "server.properties."
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


def inert(texts: Iterable[str]) -> list[str]:
    """Return those keys of dynamic values that are stored, and have no effect."""
    return sorted(name for name in texts if name in InertKeys.KEYS)


def _require_known(without_effect: Iterable[str]) -> None:
    for name in without_effect:
        if name in InertKeys.KEYS:
            continue
        if is_of_kafka(name):
            _refuse_fixed(name)
        raise ConfigError(f"Unknown broker config name: {name}{asking(meant_by(name))}")


def _require_dynamic(names: Mapping[str, str]) -> None:
    fixed = [name for name in names if not _is_dynamic(name)]
    if fixed:
        _refuse_fixed(*sorted(fixed))


def _refuse_fixed(*names: str) -> NoReturn:
    raise ConfigError(f"Cannot update these configs dynamically: {java_text(names)}")


def _is_dynamic(name: str) -> bool:
    if BrokerConfig.key_of(name).update is not Update.READ_ONLY:
        return True
    # As in Kafka, all keys of SASL with the prefix of a listener are.
    own = parse_listener_key(name)
    return own is not None and own.key in SaslKeys.KEYS


def _require_own(
    static: BrokerConfig, cluster_defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> None:
    """Raise ConfigError for keys of single listeners that are set for all or for the cluster."""
    for layer, allowed in ((cluster_defaults, False), (overrides, True)):
        unknown = {*static.keys_without_effect(layer)} - InertKeys.KEYS.keys()
        for name in sorted(layer.keys() - unknown):
            own = parse_listener_key(name)
            is_sasl = own is not None and own.key in SaslKeys.KEYS
            if BrokerConfig.key_of(name).update is not Update.PER_BROKER and not is_sasl:
                continue
            if name in TlsKeys.KEYS:
                raise ConfigError(
                    "These security configs can be dynamically updated only per-listener using "
                    f"the listener prefix: [{name}]"
                )
            if not allowed:
                raise ConfigError(
                    "Cannot update these configs at default cluster level, broker id must be "
                    f"specified: [{name}]"
                )
