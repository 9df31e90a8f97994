"""A guard for clients of the older transaction protocol, where one epoch has many transactions.

An EndTxn that was held up somewhere can arrive when its transaction has long been ended by a retry
on a newer connection, and would then end the producer's *next* one (KAFKA-17754): nothing in the
request tells the two apart. But it arrives on an older connection than one that this producer has
used since, and is refused for that.

Only requests of the current producer to the coordinator count: a zombie on a newer connection is
refused for its epoch and changes nothing here. Its limits:

- In memory only: after a fail-over every connection is new, and what was sent to another broker
  before it has no order at all.
- A producer that starts anew with InitProducerId may use any connection. Mostly it has another
  epoch then, but not where it asks for the same answer once more (KIP-360).
- What a leader gets, Produce, is not guarded: there sequences tell late batches from new ones.
- Between a request and its retry on the same connection TCP keeps the order: nothing to guard.
"""

from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError


class NewestConnections:
    """The newest connection that each producer has used, by transactional id."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Producer, int]] = {}

    def admit(self, transactional_id: str, producer: Producer, connection: int) -> None:
        """Take note of a request; connections are numbered in the order they were accepted.

        Raises PRODUCER_FENCED where the producer has used a newer connection already.
        """
        seen = self._newest.get(transactional_id)
        if seen is not None and seen[0] == producer:
            if connection < seen[1]:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    "The producer has used a newer connection since this request was sent.",
                )
            if connection == seen[1]:
                return
        self._newest[transactional_id] = (producer, connection)

    def forget(self, transactional_id: str) -> None:
        """The producer starts anew, on whatever connection."""
        self._newest.pop(transactional_id, None)
