"""Group keys: the scope exists, its keys come with the protocols they steer.

Every group key of Kafka 4.3 sets a value for the consumer protocol of KIP-848, for share groups or
for streams groups. Classic groups have none: their members bring their own timeouts. Until those
protocols are served, a key would have no effect, so none is accepted.
"""

from collections.abc import Mapping

from barnabas.config.table import Table, require_known


class GroupConfig(Table):
    """What holds for one group by name."""


def validate_group_overrides(overrides: Mapping[str, str]) -> None:
    """ConfigError where AlterConfigs may not set these values for a group."""
    require_known(GroupConfig, overrides, "group")
    GroupConfig.parse(overrides)
