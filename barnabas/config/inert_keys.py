"""Keys of Kafka that have no effect here: those that are stored, those that are named in a warning,
and those that are refused, because a broker without them would not be what their user expects."""

import re
from collections.abc import Mapping
from typing import Final

from barnabas.config.declare import (
    boolean,
    double,
    integer,
    long,
    names,
    optional_string,
    short,
    string,
)
from barnabas.config.key import LONG_MAX, ConfigError, Update
from barnabas.config.table import Table

_CLUSTER: Final = Update.CLUSTER_WIDE
_THREADS: Final = "Has no effect: one thread serves all connections."
_BUFFERS: Final = "Has no effect: there is no such buffer."
_TIERED: Final = "Has no effect: there is no tiered storage (KIP-405)."
_GROUPS: Final = "Has no effect: classic and consumer groups are served, no others."
_SHARE_GROUPS: Final = "Has no effect: share groups come later (KIP-1191)."
_KERBEROS: Final = "Has no effect: GSSAPI is not supported."
_REFRESH: Final = "Has no effect: a token is fetched when a login needs one."


class InertTopicKeys(Table):
    """Keys of topics that are stored, and mean nothing."""

    errors_deadletterqueue_group_enable = boolean(False, _SHARE_GROUPS)
    remote_copy_lag_bytes = long(-1, _TIERED, at_least=-1)
    remote_copy_lag_ms = long(0, _TIERED, at_least=-1)


class InertTopicDefaults(Table):
    """Keys of a broker that topics inherit, and that mean nothing to the broker and to them."""

    log_remote_copy_lag_bytes = long(-1, _TIERED, at_least=-1, update=Update.CLUSTER_WIDE)
    log_remote_copy_lag_ms = long(0, _TIERED, at_least=-1, update=Update.CLUSTER_WIDE)


class InertKeys(Table):
    """Keys without effect that tools for Kafka set by AlterConfigs, and that are stored for them.

    In a file a warning names them; those of `sasl.` are refused there.
    """

    background_threads = integer(10, _THREADS, at_least=1, update=_CLUSTER)
    errors_deadletterqueue_auto_create_topics_enable = boolean(
        False, _SHARE_GROUPS, update=_CLUSTER
    )
    errors_deadletterqueue_topic_name_prefix = string("dlq.", _SHARE_GROUPS, update=_CLUSTER)
    group_share_assignor_offload_enable = boolean(True, _GROUPS, update=_CLUSTER)
    group_streams_assignor_offload_enable = boolean(True, _GROUPS, update=_CLUSTER)
    follower_fetch_last_tiered_offset_enable = boolean(False, _TIERED, update=_CLUSTER)
    group_coordinator_cached_buffer_max_bytes = integer(
        1_048_588, _BUFFERS, at_least=512 << 10, update=_CLUSTER
    )
    group_share_assignment_interval_ms = integer(1000, _GROUPS, at_least=0, update=_CLUSTER)
    group_streams_assignment_interval_ms = integer(1000, _GROUPS, at_least=0, update=_CLUSTER)
    log_cleaner_io_buffer_load_factor = double(0.9, _BUFFERS, update=_CLUSTER)
    log_cleaner_io_buffer_size = integer(512 << 10, _BUFFERS, at_least=0, update=_CLUSTER)
    log_cleaner_threads = integer(1, _THREADS, at_least=0, update=_CLUSTER)
    log_local_retention_bytes = long(-2, _TIERED, at_least=-2, update=_CLUSTER)
    log_local_retention_ms = long(-2, _TIERED, at_least=-2, update=_CLUSTER)
    num_io_threads = integer(8, _THREADS, at_least=1, update=_CLUSTER)
    num_network_threads = integer(3, _THREADS, at_least=1, update=_CLUSTER)
    num_recovery_threads_per_data_dir = integer(2, _THREADS, at_least=1, update=_CLUSTER)
    remote_fetch_max_wait_ms = integer(500, _TIERED, at_least=1, update=_CLUSTER)
    remote_list_offsets_request_timeout_ms = long(30_000, _TIERED, at_least=1, update=_CLUSTER)
    remote_log_index_file_cache_total_size_bytes = long(
        1 << 30, _TIERED, at_least=1, update=_CLUSTER
    )
    remote_log_manager_copier_thread_pool_size = integer(10, _TIERED, at_least=1, update=_CLUSTER)
    remote_log_manager_copy_max_bytes_per_second = long(
        LONG_MAX, _TIERED, at_least=1, update=_CLUSTER
    )
    remote_log_manager_expiration_thread_pool_size = integer(
        10, _TIERED, at_least=1, update=_CLUSTER
    )
    remote_log_manager_fetch_max_bytes_per_second = long(
        LONG_MAX, _TIERED, at_least=1, update=_CLUSTER
    )
    remote_log_manager_follower_thread_pool_size = integer(2, _TIERED, at_least=1, update=_CLUSTER)
    remote_log_reader_threads = integer(10, _TIERED, at_least=1, update=_CLUSTER)
    share_coordinator_cached_buffer_max_bytes = integer(
        1_048_588, _GROUPS, at_least=512 << 10, update=_CLUSTER
    )

    sasl_kerberos_kinit_cmd = string("/usr/bin/kinit", _KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_min_time_before_relogin = long(60_000, _KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_principal_to_local_rules = names(
        ("DEFAULT",), _KERBEROS, update=Update.PER_BROKER
    )
    sasl_kerberos_service_name = optional_string(_KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_ticket_renew_jitter = double(
        0.05, _KERBEROS, at_least=0, update=Update.PER_BROKER
    )
    sasl_kerberos_ticket_renew_window_factor = double(
        0.8, _KERBEROS, at_least=0, update=Update.PER_BROKER
    )
    sasl_login_refresh_buffer_seconds = short(300, _REFRESH, at_least=0, update=Update.PER_BROKER)
    sasl_login_refresh_min_period_seconds = short(
        60, _REFRESH, at_least=0, update=Update.PER_BROKER
    )
    sasl_login_refresh_window_factor = double(
        0.8, _REFRESH, at_least=0.5, at_most=1, update=Update.PER_BROKER
    )
    sasl_login_refresh_window_jitter = double(
        0.05, _REFRESH, at_least=0, at_most=0.25, update=Update.PER_BROKER
    )


_OF_KAFKA: Final = re.compile(
    r"(auto\.include\.jmx|broker\.(heartbeat|session)|controller\.performance|controller\.quorum"
    r"|config\.providers|early\.start|eligible\.leader|group\.(share|streams)|internal\.metadata"
    r"|kafka\.metrics|metadata\.log|metrics|remote\.log|share\.coordinator"
    r"|socket\.connection\.setup|telemetry|unstable)\..+"
    r"|.+\.purgatory\.purge\.interval\.requests"
    r"|listener\.name\.[^.]+\.num\.network\.threads"
    r"|group\.coordinator\.(append\.linger\.ms|background\.threads|new\.enable|threads"
    r"|rebalance\.protocols)"
    r"|log\.message\.(downconversion\.enable|format\.version|timestamp\.difference\.max\.ms)"
    r"|metadata\.max\.(idle\.interval\.ms|retention\.bytes|retention\.ms)"
    r"|zookeeper\.(clientCnxnSocket|max\.in\.flight\.requests|metadata\.migration\..+)"
)
"""Families of keys that Kafka 4.4 or 3.9 has."""
_SINGLE: Final = frozenset(
    {
        "config.providers",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controller.listener.names",
        "controller.socket.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "inter.broker.protocol.version",
        "log.dir.failure.timeout.ms",
        "log.initial.task.delay.ms",
        "metric.reporters",
        "offsets.commit.required.acks",
        "process.roles",
        "queued.max.requests",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.socket.receive.buffer.bytes",
        "request.timeout.ms",
        "reserved.broker.max.id",
        "sasl.mechanism.controller.protocol",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
    }
)


def is_of_kafka(name: str) -> bool:
    """Return whether Kafka has a key that has no effect here."""
    known = name in InertKeys.KEYS or name in InertTopicDefaults.KEYS or name in _SINGLE
    return known or _OF_KAFKA.fullmatch(name) is not None


_HARMLESS: Final = frozenset({"", "false", "none", "PLAINTEXT"})
_OF_AN_IMAGE: Final = re.compile(
    r"(client|inter\.broker|controller|zookeeper)\.(users?|passwords?)"
    r"|certificate\.password|(zookeeper\.)?tls\..+|zookeeper\.protocol"
    r"|kraft\.bootstrap\.scram\.users"
)
"""Variables of Bitnami's image about users and TLS, which are not keys of Kafka."""
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("alter.config.policy.class.name", "create.topic.policy.class.name"),
        "classes of Java cannot be loaded. Remove it if topics need no policy",
    ),
    "cordoned.log.dirs": "take the directory out of log.dirs after its partitions have moved",
    **dict.fromkeys(
        ("host.name", "port"),
        "Kafka 3.0 has removed it. Set listeners, such as PLAINTEXT://:9092, in its place",
    ),
    "remote.log.storage.system.enable": "there is no tiered storage. Remove it, and set "
    "log.retention.bytes to what the disk can hold",
    "zookeeper.metadata.migration.enable": "there is no KRaft to migrate to. Remove it",
}
"""Keys without which a broker would not be what its user expects: why, and what to do."""
_QUORUM: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


def refuse_misleading(properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a key without effect that a broker must not ignore."""
    for name, text in properties.items():
        if text.strip() in _HARMLESS:
            continue
        if name in _REFUSED:
            raise ConfigError(f"{name} has no effect here: {_REFUSED[name]}.")
        if _OF_AN_IMAGE.fullmatch(name):
            raise ConfigError(
                f"{name} is no key of Kafka, but a variable of another image: set the keys of "
                "Kafka in its place, such as sasl.jaas.config and ssl.keystore.location."
            )
    if not properties.get("advertised.listeners"):
        _refuse_removed_address(properties)
    if not properties.get("zookeeper.connect"):
        _refuse_quorum(properties)


def _refuse_removed_address(properties: Mapping[str, str]) -> None:
    host, port = (properties.get(f"advertised.{each}") for each in ("host.name", "port"))
    if host or port:
        name = "advertised.host.name" if host else "advertised.port"
        raise ConfigError(
            f"{name} has no effect here: Kafka 3.0 has removed it. Set advertised.listeners, such "
            f"as PLAINTEXT://{host or 'localhost'}:{port or 9092}, in its place."
        )


def _refuse_quorum(properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a node of a cluster of KRaft: it would be a separate cluster."""
    advice = (
        "Barnabas has no KRaft: the brokers of a cluster meet in ZooKeeper (zookeeper.connect), or "
        "are processes of one machine (`barnabas serve --processes`)"
    )
    roles = {each.strip() for each in properties.get("process.roles", "").split(",")} - {""}
    if roles == {"controller"}:
        raise ConfigError(f"process.roles=controller: {advice}. Leave this node out.")
    for name in _QUORUM:
        nodes = [each for each in properties.get(name, "").split(",") if each.strip()]
        if len(nodes) > 1 or (nodes and roles == {"broker"}):
            raise ConfigError(
                f"{name} names other nodes, and this broker would be alone. {advice}. For a single "
                f"broker remove {name}."
            )
