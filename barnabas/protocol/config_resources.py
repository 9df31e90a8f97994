"""The protocol's numbers for kinds of configuration resources and for operations on their keys."""

from enum import IntEnum
from typing import Final

DEFAULT_SOURCE: Final = 5
"""The source, in DescribeConfigs, of a key that has its default."""
CONFIG_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    DEFAULT_SOURCE: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}
"""The sources of values in DescribeConfigs, by their numbers."""


class ConfigResourceType(IntEnum):
    """The kind of resource that has a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """An operation of IncrementalAlterConfigs on one key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
