"""The broker's configuration of transactions. Times in ms."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Limits of transactions and of transactional ids."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    fences_older_connections: bool = True
    """Whether a request of the older protocol is refused if its producer has used a newer
    connection since (KAFKA-17754)."""
