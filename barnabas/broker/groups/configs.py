"""The configurations of consumer groups, as this broker knows them."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.config.broker import BrokerConfig
from barnabas.config.group_keys import GroupConfig, readable_group_overrides
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings, MigrationPolicy

_log = get_logger(__name__)
_AT_ONCE: Final = 64
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
        self._configs.follow(_KIND, self._changed)
        await self._changed(None)

    def settings(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group, which need not exist."""
        return self._settings.get(group_id, self._default)

    def _broker_changed(self, broker: BrokerConfig) -> None:
        self._default = _settings(broker, _NOTHING)
        for name, overrides in self._overrides.items():
            self._settings[name] = _settings(broker, overrides)

    async def _changed(self, name: str | None) -> None:
        """Read the configuration of a group again, or of all if `name` is None."""
        if name is not None:
            await self._read(name)
            return
        names = await self._configs.nodes(_KIND)
        for gone in self._overrides.keys() - set(names):
            self._forget(gone)
        for first in range(0, len(names), _AT_ONCE):
            await asyncio.gather(*map(self._read, names[first : first + _AT_ONCE]))

    async def _read(self, name: str) -> None:
        try:
            values = await self._configs.stored(_KIND, name)
        except ZnodeError as error:
            self._complain(name, str(error))
            return
        # Nothing is awaited after the read, so a later change is installed later.
        overrides, refusals = readable_group_overrides(values)
        if refusals:
            self._complain(name, *refusals)
        if overrides:
            self._overrides[name] = overrides
            self._settings[name] = _settings(self._configs.broker.current, overrides)
        else:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._overrides.pop(name, None)
        self._settings.pop(name, None)

    def _complain(self, name: str, *reasons: str) -> None:
        _log.error("group configuration refused", group=name, reasons=reasons)


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
