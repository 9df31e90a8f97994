"""Configuration changes: which resources exist, and which keys may be set on them.

The rules are Kafka's. A topic's new values are checked together with those it keeps. Broker keys
must be dynamic, and can be set only on the broker that they belong to. Logger levels apply at once
and are never stored (KIP-412).
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.configs import Change, Configs, Values
from barnabas.broker.cluster.topic_names import COMPACTED_TOPICS, check_name
from barnabas.broker.cluster.znodes import DEFAULT_ENTITY
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import ROOT, LoggerLevels
from barnabas.broker.server.tls import Certificates
from barnabas.broker.store.metadata_store import NoNode, SessionExpired, StoreUnavailable, TooLarge
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import LocksOut, overlay
from barnabas.config.group_keys import validate_group_overrides
from barnabas.config.key import ConfigError, Type
from barnabas.config.topic import TopicConfig, validate_topic_overrides
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError

MAX_CHARS: Final = 512 << 10
"""Characters of the keys and values of one resource, about half of what ZooKeeper stores in a node
by default. A list that grows by APPEND takes 20 ms to judge then."""
_NUMBER = re.compile(r"[+-]?[0-9]+")


class Alteration(NamedTuple):
    name: str
    operation: int
    value: str | None


class Resource(Protocol):
    """One resource of a request, in either message."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class ConfigAdmin:
    """The handler of configuration changes on one broker. All methods raise KafkaError."""

    def __init__(
        self,
        configs: Configs,
        cache: MetadataCache,
        broker_id: int,
        loggers: LoggerLevels,
        slicer: Slicer,
    ) -> None:
        self.slicer = slicer
        self._configs = configs
        self._cache = cache
        self._broker_id = broker_id
        self._loggers = loggers
        self.certificates: Sequence[Certificates] = ()
        """The certificates that broker keys name; a new key is tried before it is stored."""
        self.reload_certificates: Callable[[], object] = lambda: None
        """Uses files that have changed, also behind a key that is set to its old value again."""
        self.checks: Sequence[Callable[[BrokerConfig], object]] = ()
        """Functions that raise ConfigError for a configuration that cannot take effect."""

    async def replace(
        self,
        kind: int,
        name: str,
        values: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool,
    ) -> None:
        """Replace all values of a resource (legacy AlterConfigs)."""
        texts = await self._texts(values)
        if kind == ConfigResourceType.BROKER_LOGGER:
            raise _unknown_type(kind)

        async def replaced(_: Values) -> Values:
            return texts

        await self._store(kind, name, replaced, validate_only=validate_only)

    async def alter(
        self, kind: int, name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> None:
        """Change single keys of a resource (KIP-339)."""
        await self._texts(
            (name, "" if operation == ConfigOperation.DELETE else value)
            for name, operation, value in alterations
        )
        if kind == ConfigResourceType.BROKER_LOGGER:
            await self._alter_loggers(name, alterations, validate_only=validate_only)
            return

        async def altered(current: Values) -> Values:
            return await self._altered(kind, current, alterations)

        await self._store(kind, name, altered, validate_only=validate_only)

    async def one_by_one(
        self, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
    ) -> list[tuple[R, ErrorCode, str | None]]:
        """Return the result of each resource; one that is named twice is refused both times."""
        named: Counter[tuple[int, str]] = Counter()
        async for each in self.slicer.each(resources):
            named[each.resource_type, each.resource_name] += 1
        outcomes: list[tuple[R, ErrorCode, str | None]] = []
        async for each in self.slicer.each(resources):
            try:
                if named[each.resource_type, each.resource_name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                await alter(each)
            except KafkaError as error:
                outcomes.append((each, error.code, error.message))
            except (SessionExpired, StoreUnavailable):
                text = "The metadata cannot be reached."
                outcomes.append((each, ErrorCode.REQUEST_TIMED_OUT, text))
            else:
                outcomes.append((each, ErrorCode.NONE, None))
        return outcomes

    def check_new_topic(self, overrides: Mapping[str, str | None]) -> Values:
        """Check the configuration of a new topic; raise INVALID_CONFIG."""
        nulls = [key for key, value in overrides.items() if value is None]
        if nulls:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(nulls)}",
            )
        values = {key: value for key, value in overrides.items() if value is not None}
        if sum(map(len, values)) + sum(map(len, values.values())) > MAX_CHARS:
            raise _too_large()
        try:
            validate_topic_overrides(values, self._configs.broker.current)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return values

    def require_this_broker(self, name: str) -> None:
        """Raise INVALID_REQUEST unless the resource's name is this broker's id."""
        try:
            broker_id = parse_broker_id(name)
        except ValueError:
            raise _invalid(f"Node id must be an integer, but it is: {name}") from None
        if broker_id != self._broker_id:
            raise _invalid(f"Unexpected broker id, expected {self._broker_id}, but received {name}")

    async def _store(self, kind: int, name: str, change: Change, *, validate_only: bool) -> None:
        match kind:
            case ConfigResourceType.TOPIC:
                entity, check = ("topics", name), self._check_topic
            case ConfigResourceType.BROKER:
                entity, check = ("brokers", name or DEFAULT_ENTITY), self._check_broker
            case ConfigResourceType.GROUP:
                entity, check = ("groups", name), self._check_group
            case _:
                raise _unknown_type(kind)

        async def checked(current: Values) -> Values:
            values = await change(current)
            await self._require_small(values)
            check(name, values)
            if kind == ConfigResourceType.BROKER and name:
                await self._check_certificates(values)
            return values

        if validate_only:
            await checked(await self._configs.read(*entity))
            return
        try:
            await self._configs.alter(*entity, checked)
        except TooLarge as cause:
            raise _too_large() from cause
        except ConfigError as cause:
            raise _invalid(str(cause)) from cause
        except NoNode as cause:
            # Errors in the values take precedence over an error in the name.
            await checked({})
            raise _unknown_topic(name) from cause
        if kind == ConfigResourceType.BROKER and name:
            self.reload_certificates()

    async def _texts(self, values: Iterable[tuple[str, str | None]]) -> Values:
        """Return the values by key; refuse keys that are named twice, and missing values."""
        texts: Values = {}
        nulls: dict[str, None] = {}
        repeated = False
        size = 0
        async for key, value in self.slicer.each(values):
            size += len(key) + len(value or "")
            if size > MAX_CHARS:
                raise _too_large()
            repeated = repeated or key in texts or key in nulls
            if value is None:
                nulls[key] = None
            else:
                texts[key] = value
        if repeated:
            raise _invalid("Error due to duplicate config keys")
        if nulls:
            raise _invalid(f"Null value not supported for : {', '.join(nulls)}")
        return texts

    async def _require_small(self, values: Values) -> None:
        size = 0
        async for key, value in self.slicer.each(values.items()):
            size += len(key) + len(value)
        if size > MAX_CHARS:
            raise _too_large()

    async def _altered(
        self, kind: int, current: Values, alterations: Sequence[Alteration]
    ) -> Values:
        values = dict(current)
        async for each in self.slicer.each(alterations):
            operation = _operation(each)
            if operation is ConfigOperation.DELETE:
                values.pop(each.name, None)
                continue
            assert each.value is not None
            if operation is ConfigOperation.SET:
                values[each.name] = each.value
                continue
            items = _items(kind, each.name, operation, values.get(each.name))
            if operation is ConfigOperation.APPEND:
                known = set(items)
                async for item in self.slicer.each(_split(each.value)):
                    if item not in known:
                        known.add(item)
                        items.append(item)
            else:
                items = await self._subtracted(items, each.value)
            values[each.name] = ",".join(items)
        return values

    async def _subtracted(self, items: list[str], text: str) -> list[str]:
        """Remove the first occurrence of each item of `text`."""
        gone: Counter[str] = Counter()
        async for item in self.slicer.each(_split(text)):
            gone[item] += 1
        left = []
        async for item in self.slicer.each(items):
            if gone[item]:
                gone[item] -= 1
            else:
                left.append(item)
        return left

    def _check_topic(self, name: str, values: Values) -> None:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        check_name(name)
        self.check_new_topic(values)
        if self._cache.topic(name) is None:
            raise _unknown_topic(name)
        policy = TopicConfig.cleanup_policy.parse(values.get("cleanup.policy", "delete"))
        if name in COMPACTED_TOPICS and policy != ("compact",):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The cleanup.policy of {name} has to be compact: with another one brokers lose "
                "offsets and transactions.",
            )

    def _check_broker(self, name: str, values: Values) -> None:
        if name:
            self.require_this_broker(name)
        dynamic = self._configs.broker
        defaults, overrides = dynamic.cluster_defaults, dynamic.overrides
        try:
            if name:
                changed = overlay(dynamic.static, defaults, values)
                self._configs.passwords.require_secret(values)
            else:
                changed = overlay(dynamic.static, values, overrides)
            _check_fetchers(dynamic.current.num_replica_fetchers, changed.num_replica_fetchers)
        except LocksOut as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except ConfigError as error:
            raise _invalid(str(error)) from error

    async def _check_certificates(self, values: Values) -> None:
        dynamic = self._configs.broker
        config = overlay(dynamic.static, dynamic.cluster_defaults, values)
        try:
            for check in self.checks:
                check(config)
            for each in self.certificates:
                await each.check(config.tls_of(each.listener))
        except ConfigError as error:
            raise _invalid(str(error)) from error

    def _check_group(self, name: str, values: Values) -> None:
        if not name:
            raise _invalid("Default group resources are not allowed.")
        try:
            validate_group_overrides(values, self._configs.broker.current)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def _alter_loggers(
        self, name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> None:
        self.require_this_broker(name)
        changes = []
        async for each in self.slicer.each(alterations):
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
    """Return the number that names a BROKER or BROKER_LOGGER resource; ValueError if it is not
    one."""
    if not _NUMBER.fullmatch(name):
        raise ValueError(name)
    return int(name)


def _check_fetchers(current: int, wanted: int) -> None:
    """Raise ConfigError, as Kafka does, if the number is more than doubled or less than halved."""
    text = f"Dynamic thread count update validation failed for num.replica.fetchers={wanted}, value"
    if wanted < current // 2:
        raise ConfigError(f"{text} should be at least half the current value {current}")
    if wanted > current * 2:
        raise ConfigError(f"{text} should not be greater than double the current value {current}")


def _items(kind: int, name: str, operation: ConfigOperation, text: str | None) -> list[str]:
    """Return the items of a list; an unset key has its default."""
    table = TopicConfig if kind == ConfigResourceType.TOPIC else BrokerConfig
    key = table.KEYS.get(name)
    if key is None or key.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {name} because its type is not LIST.",
        )
    whole = key.text(key.default) if text is None else text
    return [item for item in (whole or "").split(",") if item]


def _split(text: str) -> Iterator[str]:
    """Yield what `text.split(",")` returns, item by item."""
    start = 0
    while (end := text.find(",", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _operation(alteration: Alteration) -> ConfigOperation:
    try:
        return ConfigOperation(alteration.operation)
    except ValueError:
        raise _invalid(f"Unknown operations type {alteration.operation}") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _too_large() -> KafkaError:
    text = "The configuration is larger than the metadata store takes."
    return KafkaError(ErrorCode.INVALID_CONFIG, text)


def _unknown_type(kind: int) -> KafkaError:
    return _invalid(f"Unknown resource type {kind}")


def _unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
