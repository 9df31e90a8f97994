"""Altering configurations: which resources there are, and what may be set on them.

The rules are Kafka's: a topic's values are checked together with those it keeps, broker keys only
if they are dynamic and only by the broker they are for, loggers at once and never stored (KIP-412).
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.store import NoNode, SessionExpired, StoreUnavailable, TooLarge
from barnabas.broker.metadata.topic_names import check_name
from barnabas.broker.metadata.znodes import DEFAULT_ENTITY
from barnabas.broker.observability.logging import ROOT, LoggerLevels
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import overlaid
from barnabas.config.group import validate_group_overrides
from barnabas.config.key import ConfigError, Type
from barnabas.config.topic import TopicConfig, validate_topic_overrides
from barnabas.protocol.config_resources import ConfigOperation, ResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError

Values = dict[str, str]

_NUMBER = re.compile(r"[+-]?[0-9]+")


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None


class Resource(Protocol):
    """One resource of a request, in whichever message."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class ConfigAdmin:
    """Alters the resources of a cluster from one of its brokers. All methods raise KafkaError."""

    def __init__(
        self, configs: Configs, cache: MetadataCache, broker_id: int, loggers: LoggerLevels
    ) -> None:
        self._configs = configs
        self._cache = cache
        self._broker_id = broker_id
        self._loggers = loggers

    async def replace(
        self,
        kind: int,
        name: str,
        values: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool,
    ) -> None:
        """All that is set on a resource from now on (legacy AlterConfigs)."""
        _check_once([key for key, _ in values])
        texts = _without_nulls(values)
        if kind == ResourceType.BROKER_LOGGER:
            raise _unknown_type(kind)
        await self._store(kind, name, lambda _: texts, validate_only=validate_only)

    async def alter(
        self, kind: int, name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> None:
        """Change single keys of a resource (KIP-339)."""
        _check_once([each.name for each in alterations])
        _without_nulls(
            [
                (each.name, each.value)
                for each in alterations
                if each.operation != ConfigOperation.DELETE
            ]
        )
        if kind == ResourceType.BROKER_LOGGER:
            self._alter_loggers(name, alterations, validate_only=validate_only)
            return
        await self._store(
            kind,
            name,
            lambda current: _altered(kind, current, alterations),
            validate_only=validate_only,
        )

    def check_new_topic(self, overrides: Mapping[str, str | None]) -> Values:
        """What a topic may be created with; raises INVALID_CONFIG."""
        nulls = [key for key, value in overrides.items() if value is None]
        if nulls:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(nulls)}",
            )
        values = {key: value for key, value in overrides.items() if value is not None}
        try:
            validate_topic_overrides(values, self._configs.broker.current)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return values

    def require_this_broker(self, name: str) -> None:
        """Raises INVALID_REQUEST unless the resource's name is this broker's id."""
        try:
            broker_id = parse_broker_id(name)
        except ValueError:
            raise _invalid(f"Node id must be an integer, but it is: {name}") from None
        if broker_id != self._broker_id:
            raise _invalid(f"Unexpected broker id, expected {self._broker_id}, but received {name}")

    async def _store(
        self, kind: int, name: str, change: Callable[[Values], Values], *, validate_only: bool
    ) -> None:
        match kind:
            case ResourceType.TOPIC:
                entity, check = ("topics", name), self._check_topic
            case ResourceType.BROKER:
                entity, check = ("brokers", name or DEFAULT_ENTITY), self._check_broker
            case ResourceType.GROUP:
                entity, check = ("groups", name), self._check_group
            case _:
                raise _unknown_type(kind)

        def checked(current: Values) -> Values:
            values = change(current)
            check(name, values)
            return values

        if validate_only:
            checked(await self._configs.read(*entity))
            return
        try:
            await self._configs.alter(*entity, checked)
        except TooLarge as cause:
            text = "The configuration is larger than the metadata store takes."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text) from cause
        except NoNode as cause:
            # What is wrong with the values comes before what is wrong with the name.
            checked({})
            raise _unknown_topic(name) from cause

    def _check_topic(self, name: str, values: Values) -> None:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        check_name(name)
        self.check_new_topic(values)
        if self._cache.topic(name) is None:
            raise _unknown_topic(name)

    def _check_broker(self, name: str, values: Values) -> None:
        if name:
            self.require_this_broker(name)
        dynamic = self._configs.broker
        defaults, overrides = dynamic.cluster_defaults, dynamic.overrides
        try:
            if name:
                overlaid(dynamic.static, defaults, values)
            else:
                overlaid(dynamic.static, values, overrides)
        except ConfigError as error:
            raise _invalid(str(error)) from error

    def _check_group(self, name: str, values: Values) -> None:
        if not name:
            raise _invalid("Default group resources are not allowed.")
        try:
            validate_group_overrides(values)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _alter_loggers(
        self, name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> None:
        self.require_this_broker(name)
        changes = []
        for each in alterations:
            if each.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
                operation = _operation(each).name
                raise _invalid(
                    f"{operation} operation is not allowed for the BROKER_LOGGER resource"
                )
            if each.operation == ConfigOperation.DELETE and each.name == ROOT:
                raise _invalid("Removing the log level of the root logger is not allowed")
            changes.append(
                (each.name, each.value if each.operation == ConfigOperation.SET else None)
            )
        try:
            self._loggers.check(changes)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not validate_only:
            for logger, level in changes:
                self._loggers.change(logger, level)


def parse_broker_id(name: str) -> int:
    """The number that a BROKER or BROKER_LOGGER resource is named by; ValueError if it is none."""
    if not _NUMBER.fullmatch(name):
        raise ValueError(name)
    return int(name)


async def one_by_one(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[tuple[R, ErrorCode, str | None]]:
    """What became of each resource, on its own; one that is named twice is refused each time."""
    named = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes: list[tuple[R, ErrorCode, str | None]] = []
    for each in resources:
        try:
            if named[each.resource_type, each.resource_name] > 1:
                raise _invalid("Each resource must appear at most once.")
            await alter(each)
        except KafkaError as error:
            outcomes.append((each, error.code, error.message))
        except (SessionExpired, StoreUnavailable):
            outcomes.append((each, ErrorCode.REQUEST_TIMED_OUT, "The metadata cannot be reached."))
        else:
            outcomes.append((each, ErrorCode.NONE, None))
    return outcomes


def _altered(kind: int, current: Values, alterations: Sequence[Alteration]) -> Values:
    values = dict(current)
    for each in alterations:
        operation = _operation(each)
        if operation is ConfigOperation.DELETE:
            values.pop(each.name, None)
            continue
        assert each.value is not None
        if operation is ConfigOperation.SET:
            values[each.name] = each.value
            continue
        items = _items(kind, each.name, operation, values.get(each.name))
        for item in each.value.split(","):
            if operation is ConfigOperation.APPEND and item not in items:
                items.append(item)
            elif operation is ConfigOperation.SUBTRACT and item in items:
                items.remove(item)
        values[each.name] = ",".join(items)
    return values


def _items(kind: int, name: str, operation: ConfigOperation, text: str | None) -> list[str]:
    """The parts of a list; what is not set stands at its key's default."""
    table = TopicConfig if kind == ResourceType.TOPIC else BrokerConfig
    key = table.KEYS.get(name)
    if key is None or key.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {name} because its type is not LIST.",
        )
    whole = key.text(key.default) if text is None else text
    return [item for item in (whole or "").split(",") if item]


def _operation(alteration: Alteration) -> ConfigOperation:
    try:
        return ConfigOperation(alteration.operation)
    except ValueError:
        raise _invalid(f"Unknown operations type {alteration.operation}") from None


def _check_once(keys: Sequence[str]) -> None:
    if len(set(keys)) < len(keys):
        raise _invalid("Error due to duplicate config keys")


def _without_nulls(values: Sequence[tuple[str, str | None]]) -> Values:
    nulls = [key for key, value in values if value is None]
    if nulls:
        raise _invalid(f"Null value not supported for : {', '.join(nulls)}")
    return {key: value for key, value in values if value is not None}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _unknown_type(kind: int) -> KafkaError:
    return _invalid(f"Unknown resource type {kind}")


def _unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
