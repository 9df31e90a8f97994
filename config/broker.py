"""The broker's configuration: every key that has an effect here, under Kafka's name."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from barnabas.config.cluster_keys import ClusterKeys
from barnabas.config.controller_keys import ControllerKeys
from barnabas.config.declare import boolean, integer, optional_string
from barnabas.config.group_keys import GroupKeys
from barnabas.config.key import ConfigError, Key
from barnabas.config.listener_keys import listener_keys, parse_listener_key
from barnabas.config.listeners import (
    Listener,
    parse_connection_overrides,
    parse_host_port,
    resolve_listeners,
    without_controllers,
)
from barnabas.config.log_keys import LogKeys, TopicDefaultKeys
from barnabas.config.network_keys import NetworkKeys
from barnabas.config.refusals import refuse_security
from barnabas.config.replication_keys import ReplicationKeys
from barnabas.config.shutdown_keys import ShutdownKeys
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.config.transaction_keys import TransactionKeys
from barnabas.config.zookeeper_keys import ZooKeeperKeys

_ALIASES: Final = {"node.id": "broker.id"}
_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS


class BrokerConfig(
    ClusterKeys,
    ZooKeeperKeys,
    NetworkKeys,
    LogKeys,
    TopicDefaultKeys,
    ReplicationKeys,
    ShutdownKeys,
    ControllerKeys,
    GroupKeys,
    TransactionKeys,
):
    """What one broker was told. Build it with `from_properties`."""

    auto_create_topics_enable = boolean(
        True, "Whether asking for a topic that does not exist creates it."
    )
    broker_id = integer(
        0, "Number of this broker in its cluster; `node.id` is the same.", at_least=0
    )
    broker_rack = optional_string(
        "Where this broker stands, for readers that prefer a near replica."
    )
    default_replication_factor = integer(
        1, "Replicas of a topic whose creator does not say.", at_least=1
    )
    delete_topic_enable = boolean(True, "Whether topics can be deleted.")
    fetch_max_bytes = integer(55 << 20, "Most bytes of records in one Fetch answer.", at_least=1024)
    max_incremental_fetch_session_cache_slots = integer(
        1000, "Incremental fetch sessions that are kept (KIP-227).", at_least=0
    )
    max_request_partition_size_limit = integer(
        2000, "Most partitions in one DescribeTopicPartitions answer.", at_least=1
    )
    num_partitions = integer(1, "Partitions of a topic whose creator does not say.", at_least=1)

    given: Mapping[str, str] = MappingProxyType({})
    """The texts that were given, by key: what DescribeConfigs calls the static configuration."""

    of_listeners: Mapping[str, object] = MappingProxyType({})
    """Values of keys that hold for one listener, by the whole key."""

    warnings: tuple[str, ...] = ()
    """What a person should read at start-up, one sentence each."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, strict: bool = False) -> Self:
        """The configuration that properties describe; ConfigError where they cannot be taken.

        Keys that have no effect here end up in one warning, or in an error where `strict`.
        """
        refuse_security(properties)
        texts = _without_controllers(one_name_each(properties))
        given = {key: text for key, text in texts.items() if key in cls.KEYS}
        config = cls(**cls.parse(given))
        config.validate()
        unknown = config.without_effect(texts)
        if unknown and strict:
            raise ConfigError(f"These configuration keys have no effect here: {', '.join(unknown)}")
        given |= {key: text for key, text in texts.items() if key not in unknown}
        return config.overlaid(texts).replace(
            given=MappingProxyType(given), warnings=_warnings(unknown)
        )

    @classmethod
    def key_of(cls, name: str) -> Key[Any]:
        """The key of that name, or the one that `name` sets for a listener; KeyError."""
        own = parse_listener_key(name)
        return cls.KEYS[name if own is None else own.key]

    def without_effect(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are neither keys of a broker nor of one of its listeners."""
        own = listener_keys(names, self._listener_names())
        return [name for name in self.unknown(names) if name not in own]

    def overlaid(self, texts: Mapping[str, str]) -> Self:
        """A copy in which some keys have other values; ConfigError where one cannot be taken."""
        own = listener_keys(texts, self._listener_names())
        values = {name: self.KEYS[key.key].parse(texts[name]) for name, key in own.items()}
        given = {name: text for name, text in texts.items() if name in self.KEYS}
        return self.replace(
            **self.parse(given), of_listeners=MappingProxyType({**self.of_listeners, **values})
        )

    def max_connections_of(self, listener: str) -> int:
        """Connections that one listener may have open."""
        own = self.of_listeners.get(f"listener.name.{listener.lower()}.max.connections")
        return own if isinstance(own, int) else self.max_connections

    def _listener_names(self) -> list[str]:
        return [listener.name for listener in self.resolved_listeners()]

    def validate(self) -> None:
        """ConfigError where keys that are well by themselves contradict each other."""
        self._check_metadata()
        self._check_listeners()
        parse_connection_overrides(
            "max.connections.per.ip.overrides", self.max_connections_per_ip_overrides
        )
        if self.metrics_listener is not None:
            parse_host_port("metrics.listener", self.metrics_listener)
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError.invalid(
                "group.min.session.timeout.ms",
                self.group_min_session_timeout_ms,
                f"Value must not be above group.max.session.timeout.ms "
                f"({self.group_max_session_timeout_ms})",
            )
        if self.transactional_id_expiration_ms <= self.transaction_max_timeout_ms:
            raise ConfigError.invalid(
                "transactional.id.expiration.ms",
                self.transactional_id_expiration_ms,
                f"Value must be above transaction.max.timeout.ms "
                f"({self.transaction_max_timeout_ms})",
            )
        TopicConfig.resolve({}, self).require_consistent()

    def resolved_listeners(self) -> tuple[Listener, ...]:
        """The sockets to open, in the order in which they were given."""
        return resolve_listeners(
            self.listeners, self.advertised_listeners, self.listener_security_protocol_map
        )

    def inter_broker_listener(self) -> Listener:
        """The listener that brokers use among themselves."""
        wanted = (self.inter_broker_listener_name or "PLAINTEXT").upper()
        advertised = [each for each in self.resolved_listeners() if each.advertised is not None]
        for listener in advertised:
            if listener.name == wanted:
                return listener
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are "
            + ",".join(listener.name for listener in advertised)
        )

    @property
    def in_cluster(self) -> bool:
        """Whether the metadata is shared, so that there may be other brokers."""
        return self.metadata_socket is not None or bool(self.zookeeper_connect)

    def _check_metadata(self) -> None:
        if self.zookeeper_connect and self.metadata_socket is not None:
            raise ConfigError(
                "zookeeper.connect and metadata.socket name two stores: leave one of them out"
            )
        self.check_zookeeper()

    def _check_listeners(self) -> None:
        between = self.inter_broker_listener()
        if not self.in_cluster:
            return
        others = [each for each in self.resolved_listeners() if each != between]
        if self.inter_broker_listener_name is None or not others:
            raise ConfigError(
                "Brokers of a cluster need a listener for themselves: add one to listeners that no "
                "client uses, as REPLICATION://:9192, map it to PLAINTEXT in "
                "listener.security.protocol.map, and name it in inter.broker.listener.name"
            )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories that hold partitions."""
        return self.log_dirs or self.log_dir

    def topic_defaults(self) -> dict[str, object]:
        """What a topic without overrides gets: values by attribute of `TopicConfig`."""
        defaults: dict[str, object] = {
            name.replace(".", "_"): getattr(self, synonyms[0].replace(".", "_"))
            for name, synonyms in BROKER_SYNONYMS.items()
        }
        defaults["flush_ms"] = _first(
            self.log_flush_interval_ms, self.log_flush_scheduler_interval_ms
        )
        defaults["retention_ms"] = _retention_ms(self)
        defaults["segment_ms"] = _first(self.log_roll_ms, self.log_roll_hours * _HOUR_MS)
        defaults["segment_jitter_ms"] = _first(
            self.log_roll_jitter_ms, self.log_roll_jitter_hours * _HOUR_MS
        )
        return defaults


def _first(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _retention_ms(config: BrokerConfig) -> int:
    """The most precise of three keys that is set; every negative age means for ever."""
    minutes = _first(config.log_retention_minutes, config.log_retention_hours * 60)
    return max(-1, _first(config.log_retention_ms, minutes * _MINUTE_MS))


def one_name_each(properties: Mapping[str, str]) -> dict[str, str]:
    """Every key under the first of its names; ConfigError where two names say two things."""
    texts = dict(properties)
    for alias, name in _ALIASES.items():
        text = texts.pop(alias, None)
        if text is not None and texts.setdefault(name, text) != text:
            raise ConfigError(f"{name} ({texts[name]}) and {alias} ({text}) must be the same")
    return texts


def _without_controllers(texts: dict[str, str]) -> dict[str, str]:
    """Compose files for KRaft carry a controller's listener, which is not ours to open."""
    controllers = texts.get("controller.listener.names", "").split(",")
    for key in ("listeners", "advertised.listeners"):
        if key in texts:
            addresses = [address.strip() for address in texts[key].split(",")]
            texts[key] = ",".join(without_controllers(addresses, controllers))
    return texts


def _warnings(unknown: list[str]) -> tuple[str, ...]:
    if not unknown:
        return ()
    return (f"These configuration keys have no effect here: {', '.join(unknown)}",)
