"""The protocol's numbers for kinds of configuration resources and for operations on their keys."""

from enum import IntEnum


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
