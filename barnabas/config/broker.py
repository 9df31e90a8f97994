"""The broker's configuration: every key that has an effect here, under Kafka's name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeVar

from barnabas.config.controller_keys import ControllerKeys, ShutdownKeys
from barnabas.config.declare import boolean, integer, optional_string, string
from barnabas.config.group_keys import ConsumerGroupKeys, GroupKeys
from barnabas.config.inert_keys import InertKeys, InertTopicDefaults, is_of_kafka, refuse_misleading
from barnabas.config.key import INT_MAX, ConfigError, Key, Type
from barnabas.config.listeners import (
    Listener,
    listener_keys,
    parse_connection_overrides,
    parse_host_port,
    parse_listener_key,
    resolve_listeners,
    without_controllers,
)
from barnabas.config.log_keys import LogKeys, TopicDefaultKeys
from barnabas.config.metadata_keys import SharedMetadataKeys, ZooKeeperKeys
from barnabas.config.network_keys import NetworkKeys
from barnabas.config.password_keys import PasswordEncoderKeys
from barnabas.config.replication_keys import ReplicationKeys
from barnabas.config.sasl_keys import MECHANISMS, DelegationTokenKeys, SaslKeys
from barnabas.config.spelling import asking, closest
from barnabas.config.table import Table
from barnabas.config.tls_keys import TlsKeys
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.config.transaction_keys import TransactionKeys

_ALIASES: Final = {
    "node.id": "broker.id",
    "delegation.token.master.key": "delegation.token.secret.key",
}
_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""The authorizers of Kafka 4 and of 3.9: names of the only one that Barnabas has."""

_SECURITY: Final = re.compile(
    r"(listener\.name\..+\.)?(ssl|sasl|delegation\.token|password\.encoder)\..+"
    r"|(listener\.name\.[^.]+\.)?principal\.builder\.class"
    r"|security\.providers"
    r"|client\.quota\.callback\.class"
)
_ZOOKEEPER_TLS: Final = re.compile(
    r"zookeeper\.ssl\.(?!client\.enable|keystore\.|truststore\.(location|type)|endpoint\.).+"
)
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.")
T = TypeVar("T", bound=Table)
_NO_SECURITY: Final = frozenset({"", "none", "PLAINTEXT"})


class Exposure(NamedTuple):
    """A danger that a configuration allows, as Kafka's defaults do."""

    kind: str
    """The label of its metric: `anonymous`, `any_authority`, `clear_passwords`, `no_super_users`
    or `open_metadata`."""
    listener: str
    """Empty if it concerns all of them."""
    text: str
    """The danger and its remedy, for the log."""

    @classmethod
    def of_open_nodes(cls, paths: Iterable[str]) -> Self:
        """Return the danger of nodes that are older than zookeeper.set.acl=true."""
        text = (
            "Nodes in ZooKeeper that are older than zookeeper.set.acl=true are open to every host "
            f"that reaches it: {', '.join(paths)}. Run `barnabas metadata protect --config "
            "server.properties` once."
        )
        return cls("open_metadata", "", text)


class BrokerConfig(
    SharedMetadataKeys,
    ZooKeeperKeys,
    NetworkKeys,
    TlsKeys,
    PasswordEncoderKeys,
    SaslKeys,
    DelegationTokenKeys,
    LogKeys,
    TopicDefaultKeys,
    InertTopicDefaults,
    ReplicationKeys,
    ShutdownKeys,
    ControllerKeys,
    GroupKeys,
    ConsumerGroupKeys,
    TransactionKeys,
):
    """The configuration of one broker; `from_properties` creates it."""

    allow_everyone_if_no_acl_found = boolean(
        False, "Allow what no access control rule names. Needs `authorizer.class.name`."
    )
    authorizer_class_name = string(
        "",
        f"`{AUTHORIZERS[0]}`, or `{AUTHORIZERS[1]}` of Kafka 3.9: ask access control rules before "
        "each request. Both mean the same authorizer here. Empty: every client may do everything.",
    )
    auto_create_topics_enable = boolean(
        True, "Create a missing topic when a client requests its metadata."
    )
    broker_id = integer(0, "Id of this broker in its cluster; `node.id` is an alias.", at_least=0)
    broker_rack = optional_string(
        "Rack of this broker, for consumers that prefer a replica in their own rack."
    )
    default_replication_factor = integer(
        1, "Replication factor of topics that are created without one.", at_least=1
    )
    delete_topic_enable = boolean(True, "Allow topics to be deleted.")
    fetch_max_bytes = integer(
        55 << 20, "Maximum bytes of records in one Fetch response.", at_least=1024
    )
    quota_window_num = integer(
        11,
        "Number of windows over which the rates of clients are measured: bytes produced and "
        "fetched, and time of the event loop.",
        at_least=1,
    )
    quota_window_size_seconds = integer(1, "Length of one of these windows.", at_least=1)
    controller_quota_window_num = integer(
        11,
        "Number of windows whose `controller_mutation_rate` a client may use at once.",
        at_least=1,
    )
    controller_quota_window_size_seconds = integer(1, "Length of one of these windows.", at_least=1)
    max_incremental_fetch_session_cache_partitions = integer(
        250_000,
        "Number of partitions in all incremental fetch sessions, of about 300 bytes each. A "
        "consumer beyond it fetches without a session; a follower always has one. A key of "
        "Barnabas that Kafka does not have.",
        at_least=0,
    )
    max_incremental_fetch_session_cache_slots = integer(
        1000, "Number of incremental fetch sessions that are kept (KIP-227).", at_least=0
    )
    max_request_partition_size_limit = integer(
        2000, "Maximum number of partitions in one DescribeTopicPartitions response.", at_least=1
    )
    num_partitions = integer(
        1, "Number of partitions of topics that are created without one.", at_least=1
    )

    super_users = string(
        "",
        "Principals that may do everything, separated by semicolons: `User:alice;User:b0`. Brokers "
        "should be among them. Needs `authorizer.class.name`.",
    )

    given: Mapping[str, str] = MappingProxyType({})
    """The static configuration of DescribeConfigs: the given texts by key."""

    listener_values: Mapping[str, object] = MappingProxyType({})
    """Values of keys that are set for one listener, by the key with its prefix."""

    warnings: tuple[str, ...] = ()
    """Warnings to log at start-up, one sentence each."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, strict: bool = False) -> Self:
        """Create the configuration from properties; raise ConfigError if one of them is invalid.

        Keys without effect here are named in one warning; if `strict`, those that Kafka does not
        have either are an error.
        """
        texts = _without_controllers(resolve_aliases(properties))
        given = {key: text for key, text in texts.items() if key in cls.KEYS}
        refuse_misleading(texts)
        config = cls(**cls.parse(given)).overlay(texts)
        config.validate()
        unused = config.keys_without_effect(texts)
        controllers = _prefixes_of_controllers(texts)
        others = [name for name in unused if not name.startswith(controllers)]
        _refuse_security({name: texts[name] for name in others})
        if strict and (unknown := [name for name in others if not is_of_kafka(name)]):
            raise ConfigError(f"Unknown configuration keys: {_named(sorted(unknown))}")
        idle = given.keys() & InertTopicDefaults.KEYS.keys()
        warnings = _warnings(sorted([*unused, *idle]))
        given |= {key: text for key, text in texts.items() if key not in unused}
        warnings += tuple(config._announcements())
        return config.replace(given=MappingProxyType(given), warnings=warnings)

    @classmethod
    def key_of(cls, name: str) -> Key[Any]:
        """Return the key that `name` sets, for the broker or for one listener, or an inert key;
        KeyError if unknown."""
        own = parse_listener_key(name)
        name = name if own is None else own.key
        return cls.KEYS[name] if name in cls.KEYS else InertKeys.KEYS[name]

    def keys_without_effect(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are neither keys of a broker nor of one of its listeners."""
        own = listener_keys(names, self._listener_names())
        return [name for name in self.unknown(names) if name not in own]

    def overlay(self, texts: Mapping[str, str]) -> Self:
        """Return a copy with other values of some keys; raise ConfigError for an invalid one."""
        own = listener_keys(texts, self._listener_names())
        values = {name: self.KEYS[key.key].parse(texts[name]) for name, key in own.items()}
        given = {name: text for name, text in texts.items() if name in self.KEYS}
        return self.replace(
            **self.parse(given),
            listener_values=MappingProxyType({**self.listener_values, **values}),
        )

    def max_connections_of(self, listener: str) -> int:
        """Return the maximum number of open connections of one listener."""
        own = self.listener_values.get(f"listener.name.{listener.lower()}.max.connections")
        return own if isinstance(own, int) else self.max_connections

    def max_connection_creation_rate_of(self, listener: str) -> int:
        """Return the maximum number of new connections per second of one listener alone."""
        name = f"listener.name.{listener.lower()}.max.connection.creation.rate"
        own = self.listener_values.get(name)
        return own if isinstance(own, int) else INT_MAX

    def tls_of(self, listener: str) -> TlsKeys:
        """Return the keys of TLS of one listener: its own values before the general ones."""
        prefix = f"listener.name.{listener.lower()}."
        keys = self._own(TlsKeys, prefix)
        (protocol,) = (each.protocol for each in self.resolved_listeners() if each.name == listener)
        if protocol == "SASL_SSL" and f"{prefix}ssl.client.auth" not in self.listener_values:
            # Clients that authenticate with SASL need no certificate, unless the key is the
            # listener's own (KIP-684).
            return keys.replace(ssl_client_auth="none")
        return keys

    def sasl_of(self, listener: str, mechanism: str = "") -> SaslKeys:
        """Return the keys of SASL of one listener, or of one of its mechanisms."""
        prefix = f"listener.name.{listener.lower()}."
        return self._own(SaslKeys, f"{prefix}{mechanism.lower()}.", prefix)

    def _own(self, table: type[T], *prefixes: str) -> T:
        """Return the values of a table: those with a prefix, the first one first, before the
        general ones."""
        own = {
            name: self.listener_values[prefix + name]
            for prefix in reversed(prefixes)
            for name in table.KEYS
            if prefix + name in self.listener_values
        }
        return table(
            **{
                key.attribute: own.get(name, getattr(self, key.attribute))
                for name, key in table.KEYS.items()
            }
        )

    def exposures(self) -> list[Exposure]:
        """Return what listeners that other hosts can reach leave open, and an authorizer that lets
        no client in."""
        found = []
        for name, protocol, address, _ in self.resolved_listeners():
            if address.is_loopback:
                continue
            remedy = f"Map {name} to SASL_SSL in listener.security.protocol.map"
            if protocol == "PLAINTEXT" or (
                protocol == "SSL" and self.tls_of(name).ssl_client_auth != "required"
            ):
                if protocol == "SSL":
                    remedy += f", or set listener.name.{name.lower()}.ssl.client.auth=required"
                else:
                    remedy += ", or bind it to 127.0.0.1"
                text = f"Listener {name} lets anonymous clients in. {remedy}."
                found.append(Exposure("anonymous", name, text))
            elif protocol == "SSL" and self._trusts_any_authority(name):
                found.append(Exposure("any_authority", name, self._any_authority(name)))
            offered = self.sasl_of(name).sasl_enabled_mechanisms
            if protocol == "SASL_PLAINTEXT" and {"PLAIN", "OAUTHBEARER"}.intersection(offered):
                text = f"Listener {name} receives passwords or tokens in the clear. {remedy}."
                found.append(Exposure("clear_passwords", name, text))
        if self.zookeeper_connect and not self.zookeeper_set_acl and self._has_secrets():
            text = (
                "Passwords of users can be read, and replaced, in ZooKeeper by every host that "
                "reaches it. Set zookeeper.set.acl=true, and run `barnabas metadata protect` once."
            )
            found.append(Exposure("open_metadata", "", text))
        if self.authorizer_class_name and not self.super_users:
            text = (
                "authorizer.class.name is set without super.users: no principal may create the "
                "first rule. Set super.users to the administrator and the principals of brokers."
            )
            found.append(Exposure("no_super_users", "", text))
        return found

    def _trusts_any_authority(self, listener: str) -> bool:
        keys = self.tls_of(listener)
        return keys.ssl_truststore_location is None and keys.ssl_truststore_certificates is None

    def _any_authority(self, listener: str) -> str:
        text = (
            f"Listener {listener} lets every client in whose certificate an authority of the "
            "system has signed"
        )
        if listener in self.broker_listeners() and not self.authorizer_class_name:
            text += ", and takes it for a broker"
        return (
            f"{text}. Set listener.name.{listener.lower()}.ssl.truststore.location to the "
            "authorities of its own clients."
        )

    def _has_secrets(self) -> bool:
        """Return whether users or tokens of clients are in the metadata."""
        return self.delegation_token_secret_key is not None or any(
            each.has_sasl
            and any(
                name.startswith("SCRAM") for name in self.sasl_of(each.name).sasl_enabled_mechanisms
            )
            for each in self.resolved_listeners()
        )

    def _listener_names(self) -> list[str]:
        return [listener.name for listener in self.resolved_listeners()]

    def validate(self) -> None:
        """Raise ConfigError if keys that are valid on their own contradict each other."""
        self._check_metadata()
        self._check_listeners()
        self._check_authorizer()
        overrides = parse_connection_overrides(
            "max.connections.per.ip.overrides", self.max_connections_per_ip_overrides
        )
        if self.max_connections_per_ip == 0 and not overrides:
            raise ConfigError(
                "max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            )
        if self.max_connections == 0:
            raise ConfigError(
                "max.connections=0 lets no client in. Set it to 1 or more; to close one listener, "
                "set listener.name.<listener>.max.connections=0."
            )
        if self.max_connections_per_ip == 0 and not any(overrides.values()):
            raise ConfigError(
                "With max.connections.per.ip=0, max.connections.per.ip.overrides needs an address "
                "with a limit of 1 or more, such as 127.0.0.1:10."
            )
        if self.log_cleaner_dedupe_buffer_size <= 1 << 20:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
            )
        if self.metrics_listener is not None:
            parse_host_port("metrics.listener", self.metrics_listener)
        if (self.metrics_listener_certificate_file is None) != (
            self.metrics_listener_key_file is None
        ):
            raise ConfigError(
                "metrics.listener.certificate.file and metrics.listener.key.file belong together: "
                "set both or none of them"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError.invalid(
                "group.min.session.timeout.ms",
                self.group_min_session_timeout_ms,
                f"Value must not be above group.max.session.timeout.ms "
                f"({self.group_max_session_timeout_ms})",
            )
        self.require_consistent_groups()
        if self.transactional_id_expiration_ms <= self.transaction_max_timeout_ms:
            raise ConfigError.invalid(
                "transactional.id.expiration.ms",
                self.transactional_id_expiration_ms,
                f"Value must be above transaction.max.timeout.ms "
                f"({self.transaction_max_timeout_ms})",
            )
        TopicConfig.resolve({}, self).require_consistent()

    def resolved_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners to open, in the given order."""
        return resolve_listeners(
            self.listeners, self.advertised_listeners, self.listener_security_protocol_map
        )

    def inter_broker_listener(self) -> Listener:
        """Return the listener for connections between brokers."""
        wanted = (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()
        advertised = [each for each in self.resolved_listeners() if each.advertised is not None]
        for listener in advertised:
            if listener.name == wanted:
                return listener
        options = ",".join(listener.name for listener in advertised)
        source = "inter.broker.listener.name"
        if self.inter_broker_listener_name is None:
            source = "security.inter.broker.protocol"
        raise ConfigError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {options}: set it to "
            f"one of them ({source} names {wanted})"
        )

    @property
    def in_cluster(self) -> bool:
        """Whether the metadata store is shared, so that there may be other brokers."""
        return self.metadata_socket is not None or bool(self.zookeeper_connect)

    def broker_listeners(self) -> tuple[str, ...]:
        """Return the names of the listeners on which requests of brokers are served."""
        further = tuple(name.upper() for name in self.additional_inter_broker_listeners)
        return (self.inter_broker_listener().name, *further)

    @property
    def serves_clients_and_brokers(self) -> bool:
        """Whether the brokers of a cluster have one listener for themselves and for clients."""
        return self.in_cluster and len(self.resolved_listeners()) == 1

    def _check_metadata(self) -> None:
        if self.zookeeper_connect and self.metadata_socket is not None:
            raise ConfigError(
                "zookeeper.connect and metadata.socket exclude each other: set only one of them"
            )
        self.check_zookeeper()

    def _check_listeners(self) -> None:
        plain = self.security_inter_broker_protocol == "PLAINTEXT"
        if self.inter_broker_listener_name is not None and not plain:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should "
                "be set."
            )
        for listener in self.resolved_listeners():
            if listener.has_sasl:
                self._check_mechanisms(listener.name)
        between = self.inter_broker_listener()
        if not self.in_cluster:
            return
        names = self._listener_names()
        if unknown := sorted(set(self.broker_listeners()).difference(names)):
            raise ConfigError.invalid(
                "additional.inter.broker.listeners",
                self.additional_inter_broker_listeners,
                f"listeners has no {', '.join(unknown)}, but: {', '.join(names)}",
            )
        if between.has_sasl:
            self._check_own_mechanism(between.name)
        shared = self.serves_clients_and_brokers
        if shared and self.authorizer_class_name and self._authenticates(between):
            return
        if (self.inter_broker_listener_name is None and plain) or shared:
            raise ConfigError(
                "Brokers of a cluster need a listener of their own: add one to listeners that no "
                "client uses, such as REPLICATION://:9192, map it to PLAINTEXT in "
                "listener.security.protocol.map, and name it in inter.broker.listener.name. Or "
                "let one listener serve brokers and clients: with SASL, or SSL and "
                "ssl.client.auth=required, and authorizer.class.name. A single broker needs no "
                "zookeeper.connect"
            )

    def _authenticates(self, listener: Listener) -> bool:
        """Return whether a listener knows each of its clients by name."""
        return listener.has_sasl or (
            listener.has_tls and self.tls_of(listener.name).ssl_client_auth == "required"
        )

    def _check_authorizer(self) -> None:
        if self.authorizer_class_name not in ("", *AUTHORIZERS):
            raise ConfigError(
                f"authorizer.class.name {self.authorizer_class_name} is not supported: set it to "
                + " or ".join(AUTHORIZERS)
            )
        for name in filter(None, map(str.strip, self.super_users.split(";"))):
            if ":" not in name:
                raise ConfigError.invalid(
                    "super.users",
                    self.super_users,
                    f"expected a string in format principalType:principalName but got {name}",
                )
        if not self.authorizer_class_name:
            for key in ("super.users", "allow.everyone.if.no.acl.found"):
                if self.__dict__[self.KEYS[key].attribute]:
                    raise ConfigError(
                        f"{key} has no effect without authorizer.class.name: set it to "
                        f"{AUTHORIZERS[0]}, or remove {key}"
                    )

    def _check_own_mechanism(self, listener: str) -> None:
        enabled = self.sasl_of(listener).sasl_enabled_mechanisms
        if self.sasl_mechanism_inter_broker_protocol not in enabled:
            raise ConfigError(
                "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
                f"when SASL is used for inter-broker communication: set it to one of "
                f"{', '.join(enabled)}"
            )

    def _check_mechanisms(self, listener: str) -> None:
        for mechanism in self.sasl_of(listener).sasl_enabled_mechanisms:
            if mechanism not in MECHANISMS:
                needs = " (it needs a library of Kerberos)" if mechanism == "GSSAPI" else ""
                raise ConfigError(
                    f"Listener {listener} offers {mechanism}, which is not supported{needs}: set "
                    "sasl.enabled.mechanisms, or the same key with the prefix "
                    f"listener.name.{listener.lower()}., to one of {', '.join(MECHANISMS)}."
                )

    def _announcements(self) -> Iterator[str]:
        """Yield a warning for each key whose default has another meaning in the next release."""
        for listener in self.resolved_listeners():
            if not listener.has_sasl:
                continue
            if "OAUTHBEARER" not in self.sasl_of(listener.name).sasl_enabled_mechanisms:
                continue
            for claim, allowed in self.sasl_of(listener.name, "oauthbearer").unverified_claims():
                if allowed is None:
                    yield (
                        f"Listener {listener.name} takes tokens whose {claim} no key expects. The "
                        "next release does not start it, as Kafka 4.4: set "
                        f"sasl.oauthbearer.expected.{claim}, or "
                        f"sasl.oauthbearer.allow.unverified.{claim}=true."
                    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories that hold partitions."""
        return self.log_dirs or self.log_dir

    def topic_defaults(self) -> dict[str, object]:
        """Return the values that a topic without overrides gets, by attribute of `TopicConfig`."""
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
    """Return the most precise of three keys that is set; a negative age means no limit."""
    minutes = _first(config.log_retention_minutes, config.log_retention_hours * 60)
    return max(-1, _first(config.log_retention_ms, minutes * _MINUTE_MS))


def resolve_aliases(properties: Mapping[str, str]) -> dict[str, str]:
    """Replace aliases of keys; raise ConfigError if a key and its alias have different values."""
    texts = dict(properties)
    for alias, name in _ALIASES.items():
        text = texts.pop(alias, None)
        if text is not None and texts.setdefault(name, text) != text:
            values = (f" ({texts[name]})", f" ({text})")
            if BrokerConfig.KEYS[name].type is Type.PASSWORD:
                values = ("", "")
            raise ConfigError(f"{name}{values[0]} and {alias}{values[1]} must be the same")
    return texts


def _without_controllers(texts: dict[str, str]) -> dict[str, str]:
    """Drop the listeners of KRaft controllers, which Compose files for Kafka have."""
    controllers = texts.get("controller.listener.names", "").split(",")
    for key in ("listeners", "advertised.listeners"):
        if key in texts:
            addresses = [address.strip() for address in texts[key].split(",")]
            texts[key] = ",".join(without_controllers(addresses, controllers))
    return texts


def _prefixes_of_controllers(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefixes of keys of listeners that `_without_controllers` drops."""
    names = texts.get("controller.listener.names", "").lower().split(",")
    return tuple(f"listener.name.{name.strip()}." for name in names if name.strip())


def _refuse_security(properties: Mapping[str, str]) -> None:
    """Raise ConfigError if keys without effect configure security: none of them is ignored."""
    if found := _security_keys(_SECURITY, properties):
        raise ConfigError(
            f"These keys of security have no effect in this release: {_named(found)}. Remove "
            "them only if the broker is safe without them."
        )
    if found := _security_keys(_ZOOKEEPER_TLS, properties):
        raise ConfigError(
            f"These keys of TLS with ZooKeeper are not supported: {', '.join(found)}. "
            "docs/configuration.md lists the supported keys; remove the others only if TLS works "
            "without them."
        )


def _security_keys(pattern: re.Pattern[str], properties: Mapping[str, str]) -> list[str]:
    return sorted(
        key
        for key, value in properties.items()
        if pattern.fullmatch(key) and value.strip() not in _NO_SECURITY
    )


def _warnings(unused: list[str]) -> tuple[str, ...]:
    if not unused:
        return ()
    return (f"These configuration keys have no effect here: {_named(unused)}",)


def _named(unused: Iterable[str]) -> str:
    """Return the names of keys without effect, misspelt ones with the key that may be meant."""
    return ", ".join(
        name if is_of_kafka(name) else f"{name}{asking(meant_by(name))}" for name in unused
    )


def meant_by(name: str) -> str | None:
    """Return the key that an unknown name may mean; None if no key is like it."""
    if name in BROKER_SYNONYMS:
        return BROKER_SYNONYMS[name][0]
    # Each listener has keys with this prefix, and their rest is what is misspelt.
    found = _LISTENER_PREFIX.match(name)
    prefix = "" if found is None else found[0]
    rest = name.removeprefix(prefix)
    if prefix and (rest in BrokerConfig.KEYS or parse_listener_key(name) is not None):
        return None
    close = closest(rest, BrokerConfig.KEYS)
    return None if close is None else f"{prefix}{close}"
