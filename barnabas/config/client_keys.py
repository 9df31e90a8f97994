"""Keys of a client that are not about security, in a file of Kafka's or librdkafka's clients."""

from collections.abc import Mapping
from typing import Self

from barnabas.config.declare import boolean, integer, optional_integer, string
from barnabas.config.table import Table


class ClientKeys(Table):
    """Name and timeouts of a client, and its check of the cluster."""

    client_id = string("barnabas", "Name of the client, in the logs and quotas of the brokers.")
    default_api_timeout_ms = integer(
        30_000, "Timeout of an operation, with all its requests.", at_least=1
    )
    metadata_cluster_check_enable = boolean(
        True,
        "Stop with an error if another cluster has taken the addresses of the one with which the "
        "client began (KIP-1242). If false, the client goes on with the other cluster, as Kafka's "
        "clients do in either case.",
    )
    request_timeout_ms = optional_integer("Timeout of each request.", at_least=1)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return these of a client's keys; others are ignored. Raises ConfigError."""
        known = {name: text for name, text in properties.items() if name in cls.KEYS}
        return cls(**cls.parse(known))
