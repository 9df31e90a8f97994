"""A transactional id at its coordinator: what the log says of it, and what only memory has.

The part that is not logged lives and ends with this object, and starts anew after a fail-over.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from barnabas.coordinator.transaction.events import Events
from barnabas.coordinator.transaction.metadata import NO_EPOCH, Producer, TransactionMetadata
from barnabas.coordinator.transaction.states import PREPARED
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


class Expectation(Protocol):
    """A partition that expects a producer."""

    @property
    def written(self) -> bool:
        """Whether the producer has written, without a question to the coordinator."""
        ...

    def void(self) -> None:
        """Let the partition ask again before the producer may write."""
        ...


class _Elsewhere:
    """A partition that another broker leads.

    It may have been written, so it always gets a marker, and that voids what it was told.
    """

    written = True

    def void(self) -> None:
        pass


ELSEWHERE: Final = _Elsewhere()


class Witness:
    """The partitions of a transaction that its records may be in."""

    __slots__ = ("asked", "told", "verification")

    def __init__(self, verification: object) -> None:
        self.verification = verification
        """The verification when the transaction began."""
        self.asked: set[TopicPartition] = set()
        """The partitions whose leaders have asked."""
        self.told: dict[TopicPartition, Expectation] = {}
        """The partitions of this broker that need not ask."""


class TransactionalId:
    """A transactional id that this broker coordinates."""

    __slots__ = (
        "deadline_ms",
        "events",
        "key",
        "latest_use",
        "pending",
        "refused_end",
        "txn",
        "witness",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.txn: TransactionMetadata | None = None
        """The logged state, which `TransactionTable.replay` alone changes. None until the first
        record is committed."""
        self.pending: TransactionMetadata | None = None
        """The target of the step that is being written."""
        self.deadline_ms: int | None = None
        """The time at which the open transaction is aborted, in ms of monotonic time."""
        self.witness: Witness | None = None
        """None unless the transaction began here while leaders ask."""
        self.latest_use: tuple[Producer, int] | None = None
        """The producer with its newest connection."""
        self.refused_end = False
        """Whether the log refuses the COMPLETE record."""
        self.events: Events | None = None
        """The latest events, which `EventHistory` keeps of the latest ids."""

    # -- steps -----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a step is being written, or markers are."""
        txn = self.txn
        return self.pending is not None or (txn is not None and txn.state in PREPARED)

    def require_free(self) -> None:
        """Raise CONCURRENT_TRANSACTIONS while a step is being written, or markers are."""
        if self.is_busy:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def require(self, producer: Producer) -> TransactionMetadata:
        """Return the transaction of the current producer, to which it may write.

        Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE.
        """
        txn = self.txn
        if txn is None or not txn.knows(producer.producer_id):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not txn.is_current(producer):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if txn.is_kept:
            message = "The transaction is kept for two-phase commit: it can only be ended."
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
        return txn

    def require_owner(self, principal: str | None) -> None:
        """Raise INVALID_PRODUCER_ID_MAPPING if the producer id was given to another principal."""
        owner = None if principal is None or self.txn is None else self.txn.owner
        if owner is not None and owner != principal:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "The producer id of the transactional id was given to another principal.",
            )

    # -- the newest connection -------------------------------------------------------------------

    def admit(self, producer: Producer, connection: int) -> None:
        """Note the connection of a request of the older protocol; connections are numbered as they
        were accepted. Raises PRODUCER_FENCED if the producer has used a newer one already.

        In that protocol one epoch has many transactions. An EndTxn that is held up on its way can
        arrive when its transaction has long been ended by a retry on a newer connection, and would
        then end the producer's *next* one (KAFKA-17754): nothing in the request tells the two
        apart. But it arrives on an older connection than one that this producer has used since.

        Only requests of the current producer to the coordinator count: a zombie on a newer
        connection is refused for its epoch, and changes nothing here. Neither does the client of a
        kept transaction, which another process may end (KIP-939). The limits of the guard:

        - It is in memory only: after a fail-over every connection is new, and requests to the
          coordinator before this one have no order.
        - A producer that starts anew with InitProducerId may use any connection. It mostly has
          another epoch then, but not if it asks for the same answer once more (KIP-360).
        - Produce is not guarded: a partition's leader tells late batches from new ones by sequence.
        - Between a request and its retry on the same connection, TCP keeps the order.
        """
        txn = self.txn
        if (
            txn is None
            or txn.producer_id != producer.producer_id
            or txn.epoch != producer.epoch
            or (txn.next_epoch != NO_EPOCH and txn.client != producer)
        ):
            return
        if self.latest_use is not None and self.latest_use[0] == producer:
            newest = self.latest_use[1]
            if connection < newest:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    "The producer has used a newer connection since this request was sent.",
                )
            if connection == newest:
                return
        self.latest_use = producer, connection

    # -- partitions whose leaders have asked -----------------------------------------------------

    def asked_about(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember partitions whose leaders are about to write to the transaction."""
        if self.witness is not None:
            self.witness.asked.update(partitions)

    def void_expected(self, kept: Collection[TopicPartition] = frozenset()) -> None:
        """Let partitions ask again, except those that will be marked: a marker voids what they
        were told."""
        if self.witness is not None:
            for partition, expectation in self.witness.told.items():
                if partition not in kept:
                    expectation.void()

    def witnessed(self, verification: object | None) -> set[TopicPartition] | None:
        """Return the partitions whose leaders have asked, or have written to as they were told;
        None if others may have been written.

        A leader may have asked the coordinator before this one, or have written without asking
        because transaction.partition.verification.enable is or was false: then `verification` is
        another object than at the beginning of the transaction.
        """
        witness = self.witness
        if witness is None or witness.verification is not verification:
            return None
        return witness.asked.union(
            partition for partition, each in witness.told.items() if each.written
        )
