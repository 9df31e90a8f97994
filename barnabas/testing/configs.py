"""The configuration of brokers in tests: values of Python, and no unknown key."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.config.broker import BrokerConfig

Value = str | int | float | bool
"""A value of a configuration key."""
Configs = Mapping[str, Value]


def texts(configs: Configs | None) -> dict[str, str]:
    """Return the values as Kafka's texts: `true` for True. Raises TypeError for other types."""
    return {key: _text(key, value) for key, value in (configs or {}).items()}


def _text(key: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"{key}: {value!r} is not a text, a number or a boolean")


def checked_config(properties: Mapping[str, str]) -> "BrokerConfig":
    """Return the configuration. Raises ValueError for an unknown key or an invalid value."""
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.key import ConfigError

    try:
        return BrokerConfig.from_properties(properties, strict=True)
    except ConfigError as error:
        raise ValueError(str(error)) from error
