"""What the broker's configuration says about transactions. Times in ms."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Limits of transactions and of the memory of transactional ids."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    fences_older_connections: bool = True
    """Whether a request of the older protocol is refused on an older connection than one that its
    producer has used since (KAFKA-17754)."""
