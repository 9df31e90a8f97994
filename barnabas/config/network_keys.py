"""Broker keys of sockets: listeners, buffers, limits, and the metrics endpoint."""

from typing import Final

from barnabas.config.declare import (
    boolean,
    integer,
    long,
    names,
    optional_names,
    optional_string,
    string,
)
from barnabas.config.key import INT_MAX, Update
from barnabas.config.table import Table

_CLUSTER: Final = Update.CLUSTER_WIDE


def _accept(key: str, protocols: tuple[str, ...]) -> None:
    """Leave the check to `resolve_listeners`: Kafka takes an empty item, and a name twice."""


class NetworkKeys(Table):
    """Keys of listeners and of limits on connections and requests."""

    advertised_listeners = optional_names(
        "Addresses that are advertised to clients, as `NAME://host:port`. Unset: `listeners`."
    )
    additional_inter_broker_listeners = names(
        (),
        "Further listeners on which requests of brokers are served, for the time in which some "
        "brokers of a cluster have another inter.broker.listener.name than the others. A key of "
        "Barnabas that Kafka does not have: its brokers serve them on all listeners.",
    )
    connection_failed_authentication_delay_ms = integer(
        100,
        "Wait before a client is told that its authentication failed, and the connection is "
        "closed (KIP-306).",
        at_least=0,
    )
    connections_max_idle_ms = long(
        600_000, "Idle time after which a connection is closed; negative is never."
    )
    connections_max_unauthenticated_ms = long(
        15_000,
        "Time after which a connection to a listener with SASL is closed if its client has not "
        "authenticated. A key of Barnabas that Kafka does not have.",
        at_least=1,
    )
    inter_broker_listener_name = optional_string(
        "Listener for connections between brokers. Unset: the one that "
        "security.inter.broker.protocol names. In a cluster one of the keys must be set, and "
        "clients must use another listener."
    )
    listener_security_protocol_map = names(
        (
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "SASL_SSL:SASL_SSL",
        ),
        "Security protocol of each listener, as `NAME:PROTOCOL`.",
        check=_accept,
    )
    listeners = names(
        ("PLAINTEXT://:9092",),
        "Addresses to listen on, as `NAME://host:port`. An empty host is every interface, "
        "port 0 any free port; an IPv6 host is in brackets. Unset, `barnabas serve` uses "
        "`PLAINTEXT://localhost:9092`.",
        may_be_empty=False,
    )
    max_connection_creation_rate = integer(
        INT_MAX,
        "Maximum number of new connections per second (KIP-612); further ones wait. Connections "
        "between brokers do not count. With the prefix `listener.name.<listener>.` it is the limit "
        "of one listener, also of that between brokers.",
        at_least=1,
        update=_CLUSTER,
    )
    max_connections = integer(
        INT_MAX,
        "Maximum number of open connections; further ones wait, or take the place of one that "
        "is idle. With the prefix `listener.name.<listener>.` it is the limit of one listener.",
        at_least=0,
        update=_CLUSTER,
    )
    max_connections_per_ip = integer(
        INT_MAX,
        "Maximum number of open connections from one address; further ones are closed.",
        at_least=0,
        update=_CLUSTER,
    )
    max_connections_per_ip_overrides = string(
        "",
        "Limits for single hosts or addresses, as `host:count`, comma-separated.",
        update=_CLUSTER,
    )
    metrics_listener = optional_string(
        "Address of the HTTP endpoint with /metrics, /stacks, /events, /healthz, /livez, /readyz "
        "and /syncz, as `host:port`. Unset: no endpoint. A key of Barnabas that Kafka does not "
        "have."
    )
    metrics_listener_certificate_file = optional_string(
        "PEM file with the certificate of the HTTP endpoint and its chain, for TLS. It is read "
        "again when it changes. A key of Barnabas that Kafka does not have."
    )
    metrics_listener_key_file = optional_string(
        "PEM file with the private key of that certificate, without a password. A key of Barnabas "
        "that Kafka does not have."
    )
    metrics_listener_token_file = optional_string(
        "File with the token that /metrics, /stacks and /events ask for, as `Authorization: "
        "Bearer`; the probes ask for none. It is read again when it changes. A key of Barnabas "
        "that Kafka does not have."
    )
    metrics_partitions_enable = boolean(
        True,
        "Report the metrics of single partitions, those with the labels topic and partition alone: "
        "most of a scrape. The numbers of partitions in each state, and the lags of groups, are "
        "reported without them. A key of Barnabas that Kafka does not have.",
    )
    queued_max_request_bytes = long(
        96 << 20,
        "Bytes of requests that are received or not answered yet, over all connections, above "
        "which the broker stops reading. Kafka's default is no limit.",
    )
    queued_max_response_bytes = long(
        128 << 20,
        "Bytes of answers in memory that their clients have not read, over all connections, above "
        "which those are closed that stand longest. A key of Barnabas that Kafka does not have.",
        at_least=1 << 20,
    )
    security_inter_broker_protocol = string(
        "PLAINTEXT",
        "Name of the listener for connections between brokers, if inter.broker.listener.name is "
        "unset.",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    socket_listen_backlog_size = integer(
        50, "Maximum number of connections that wait to be accepted.", at_least=1
    )
    socket_receive_buffer_bytes = integer(
        102_400, "SO_RCVBUF of a connection; -1 leaves the system's default."
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI",
        "Mechanism by which this broker authenticates to others, if they use a listener with SASL. "
        "It is one of the listener's mechanisms, and the options `username` and `password` of its "
        "sasl.jaas.config are the account. GSSAPI, the default of Kafka, is not supported.",
        update=Update.PER_BROKER,
    )
    sasl_server_max_receive_size = integer(
        512 * 1024,
        "Maximum size of a request before its client has authenticated.",
        at_least=1024,
    )
    socket_request_max_bytes = integer(
        104_857_600,
        "Maximum size of a request; the connection of a larger one is closed.",
        at_least=1,
    )
    fast_paths_enable = boolean(
        True,
        "Whether requests that are like an earlier one of their connection take a shorter way. "
        "The answers are the same. A key of Barnabas that Kafka does not have, for tests.",
    )
    socket_send_buffer_bytes = integer(
        102_400, "SO_SNDBUF of a connection; -1 leaves the system's default."
    )
