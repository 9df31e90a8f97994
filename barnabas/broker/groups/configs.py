"""The configurations of consumer groups, as this broker knows them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.broker.cluster.configs import Configs, FollowedEntities, Values, entity_name
from barnabas.broker.observability.logging import get_logger
from barnabas.config.broker import BrokerConfig
from barnabas.config.group_keys import GroupConfig, readable_group_overrides
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings, MigrationPolicy

_log = get_logger(__name__)
_KIND: Final = "groups"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class GroupConfigs:
    """Follows the stored configurations of groups, and the values of the broker."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._settings: dict[str, ConsumerGroupSettings] = {}
        """The settings of groups with overrides; all other groups have `_default`."""
        self._default = _settings(configs.broker.current, _NOTHING)
        configs.broker.subscribe(self._broker_changed)

    async def start(self) -> None:
        """Read the configurations of all groups, and follow their changes. Raises StoreError."""
        await FollowedEntities(self._configs, [_KIND], self._install).start()

    def settings(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group, which need not exist."""
        return self._settings.get(group_id, self._default)

    def _broker_changed(self, broker: BrokerConfig) -> None:
        self._default = _settings(broker, _NOTHING)
        for name, overrides in self._overrides.items():
            self._settings[name] = _settings(broker, overrides)

    def _install(self, path: str, values: Values) -> None:
        name = entity_name(path)
        if name is None:
            return
        overrides, refusals = readable_group_overrides(values)
        if refusals:
            _log.error("group configuration refused", group=name, reasons=refusals)
        if overrides:
            self._overrides[name] = overrides
            self._settings[name] = _settings(self._configs.broker.current, overrides)
        else:
            self._overrides.pop(name, None)
            self._settings.pop(name, None)


def _settings(broker: BrokerConfig, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
    group = GroupConfig.resolve(overrides, broker)
    return ConsumerGroupSettings(
        session_timeout_ms=group.consumer_session_timeout_ms,
        heartbeat_interval_ms=group.consumer_heartbeat_interval_ms,
        assignment_interval_ms=group.consumer_assignment_interval_ms,
        offloads_assignment=group.consumer_assignor_offload_enable,
        assignors=broker.group_consumer_assignors,
        max_size=broker.group_consumer_max_size,
        migration_policy=MigrationPolicy(broker.group_consumer_migration_policy.lower()),
        regex_refresh_interval_ms=broker.group_consumer_regex_refresh_interval_ms,
    )
