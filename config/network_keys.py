"""Broker keys of sockets: listeners, buffers, limits, and the metrics endpoint."""

from typing import Final

from barnabas.config.declare import integer, long, names, optional_names, optional_string, string
from barnabas.config.key import INT_MAX, Update
from barnabas.config.table import Table

_CLUSTER: Final = Update.CLUSTER_WIDE


class NetworkKeys(Table):
    """How clients reach the broker, and how much of it they may take."""

    advertised_listeners = optional_names(
        "Addresses that clients are told, as `NAME://host:port`. Unset: `listeners`."
    )
    connections_max_idle_ms = long(
        600_000, "A connection without a request for this long is closed; negative is never."
    )
    inter_broker_listener_name = optional_string(
        "Listener that brokers use among themselves. Unset: the one named PLAINTEXT. In a cluster "
        "it must be set, and clients have another."
    )
    listener_security_protocol_map = names(
        (
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "SASL_SSL:SASL_SSL",
        ),
        "The security protocol of each listener, as `NAME:PROTOCOL`. Only PLAINTEXT is served.",
    )
    listeners = names(
        ("PLAINTEXT://:9092",),
        "Addresses to listen on, as `NAME://host:port`. An empty host is every interface, port 0 "
        "any free one; an IPv6 host stands in brackets. Unset, `barnabas serve` takes "
        "`PLAINTEXT://localhost:9092`.",
        may_be_empty=False,
    )
    max_connections = integer(
        INT_MAX,
        "Connections open at a time; further ones wait. Under `listener.name.<listener>.` it is "
        "the limit of one listener.",
        at_least=0,
        update=_CLUSTER,
    )
    max_connections_per_ip = integer(
        INT_MAX,
        "Connections open at a time from one address; further ones are closed.",
        at_least=0,
        update=_CLUSTER,
    )
    max_connections_per_ip_overrides = string(
        "",
        "Limits of single hosts or addresses, as `host:count`, comma-separated.",
        update=_CLUSTER,
    )
    metrics_listener = optional_string(
        "Address of the HTTP endpoint with /metrics, /healthz and /readyz, as `host:port`. "
        "Unset: no endpoint. A key of Barnabas; Kafka has none like it."
    )
    queued_max_request_bytes = long(
        128 << 20,
        "Bytes of requests in work over all connections; above it the broker stops reading. "
        "Kafka's default is no limit.",
    )
    socket_listen_backlog_size = integer(
        50, "Connections that may wait to be accepted.", at_least=1
    )
    socket_receive_buffer_bytes = integer(
        102_400, "SO_RCVBUF of a connection; -1 leaves the system's default."
    )
    socket_request_max_bytes = integer(
        104_857_600, "Largest request; a larger one closes its connection.", at_least=1
    )
    socket_send_buffer_bytes = integer(
        102_400, "SO_SNDBUF of a connection; -1 leaves the system's default."
    )
