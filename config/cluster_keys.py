"""Broker keys that make brokers a cluster: where the metadata is that they share."""

from barnabas.config.declare import integer, optional_string
from barnabas.config.table import Table


class ClusterKeys(Table):
    """Without any of them a broker is alone, and keeps its metadata in its own directory."""

    metadata_socket = optional_string(
        "Path of the Unix socket on which `barnabas cluster up` serves the metadata of the brokers "
        "of one machine. A key of Barnabas; Kafka has none like it."
    )
    metadata_session_timeout_ms = integer(
        6000,
        "A broker that the store behind `metadata.socket` has not heard for this long has left the "
        "cluster. A key of Barnabas; Kafka has none like it.",
        at_least=100,
    )
