"""One transactional id as the log knows it, and what each step makes of it. Pure and immutable.

A step returns the next value; it becomes true when its record is committed and replayed. Steps are
only asked for where the table in `states.py` allows them.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.states import TransactionState, check_transition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
LAST_CLIENT_EPOCH: Final = 32_766
"""The highest epoch that a client may hold; 32,767 is only ever written by a coordinator."""

TV0: Final = 0
TV2: Final = 2
"""`transaction.version` of KIP-890 part 2: every transaction has an epoch of its own."""


class Producer(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """A transactional id, its producer and its latest transaction. Times in ms of wall clock."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """In the transaction; once it is decided, those that wait for a marker."""
    start_ms: int = NO_TIMESTAMP
    last_epoch: int = NO_EPOCH
    """The epoch before the last bump, if its holder may learn the current one by asking again."""
    client_version: int = TV0
    """The `transaction.version` that the client of the latest transaction speaks."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Of a decided transaction that used up its epochs: what the producer goes on with."""
    next_epoch: int = NO_EPOCH

    @property
    def exhausted(self) -> bool:
        """Whether the next bump would leave no epoch for the client."""
        return self.epoch >= LAST_CLIENT_EPOCH

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    def _to(self, state: TransactionState, updated_ms: int) -> "Transaction":
        check_transition(self.state, state)
        return self._replace(
            state=state, updated_ms=updated_ms, previous_producer_id=self.producer_id
        )

    # -- InitProducerId --------------------------------------------------------------------------

    def incremented(self, timeout_ms: int, expected: int | None, now_ms: int) -> "Transaction":
        """The next epoch, or for a producer that asks again (KIP-360) the same one once more.

        Raises PRODUCER_FENCED for an epoch that is neither the current nor the last one.
        """
        epoch, last_epoch = self.epoch + 1, NO_EPOCH
        if expected is not None and self.epoch != NO_EPOCH:
            if expected == self.epoch:
                last_epoch = self.epoch
            elif expected == self.last_epoch:
                epoch, last_epoch = self.epoch, self.last_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._initialised(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def rotated(
        self, producer_id: int, timeout_ms: int, *, resumes: bool, now_ms: int
    ) -> "Transaction":
        """A fresh producer id at epoch 0; `resumes` where the old one's holder asked for it."""
        last_epoch = self.epoch if resumes else NO_EPOCH
        return self._initialised(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _initialised(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        return self._to(TransactionState.EMPTY, now_ms)._replace(
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    # -- a transaction ---------------------------------------------------------------------------

    def with_partitions(
        self, added: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> "Transaction":
        """The transaction with more partitions; the first ones begin it."""
        ongoing = self.state is TransactionState.ONGOING
        return self._to(TransactionState.ONGOING, now_ms)._replace(
            partitions=self.partitions.union(added),
            start_ms=self.start_ms if ongoing else now_ms,
            client_version=client_version,
        )

    def prepared(
        self,
        committed: bool,
        client_version: int,
        now_ms: int,
        *,
        next_producer_id: int = NO_PRODUCER_ID,
        partitions: frozenset[TopicPartition] | None = None,
    ) -> "Transaction":
        """Decided by the producer: with TV2 the epoch is used up with the transaction.

        `partitions` narrows those that need a marker (KIP-609); None where all do.
        """
        bumps = client_version >= TV2
        nothing = self.state is not TransactionState.ONGOING
        return self._to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT, now_ms
        )._replace(
            epoch=self.epoch + 1 if bumps else self.epoch,
            last_epoch=self.epoch if bumps else self.last_epoch,
            next_producer_id=next_producer_id,
            client_version=client_version,
            start_ms=now_ms if nothing else self.start_ms,
            partitions=self.partitions if partitions is None else partitions,
        )

    def fenced(self, client_version: int, now_ms: int) -> "Transaction":
        """Aborted by the coordinator: its producer's epoch is over, and cannot be resumed."""
        return self._to(TransactionState.PREPARE_ABORT, now_ms)._replace(
            epoch=self.epoch + 1, last_epoch=NO_EPOCH, client_version=client_version
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Every marker is written. A producer that used up its epochs goes on with another id."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        target = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        done = self._to(target, now_ms)._replace(partitions=frozenset())
        if self.client_version >= TV2 and self.next_producer_id != NO_PRODUCER_ID:
            return done._replace(
                producer_id=self.next_producer_id, epoch=0, next_producer_id=NO_PRODUCER_ID
            )
        return done
