"""A transactional id as the log holds it, and its steps. Pure and immutable.

A step returns the next value, which holds once its record is committed and replayed. The table in
`states.py` says which steps a state allows.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.states import TransactionState, check_transition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions that are never aborted by time (KIP-939), as Kafka stores it."""
_new = tuple.__new__
"""Makes a named tuple from all its fields in a quarter of the time of `_replace`, for the steps of
every transaction."""
LAST_CLIENT_EPOCH: Final = 32_766
"""The highest epoch of a client; only a coordinator writes 32,767."""

_ONGOING: Final = TransactionState.ONGOING
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

TV0: Final = 0
TV2: Final = 2
"""`transaction.version` of KIP-890 part 2: every transaction has its own epoch."""


class Producer(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class NextClient(NamedTuple):
    """The producer that InitProducerId gives to a client."""

    producer: Producer
    last_epoch: int
    """The epoch before, if its holder may learn this one by asking again; otherwise NO_EPOCH."""


class TransactionMetadata(NamedTuple):
    """A transactional id, its producer and its latest transaction. Times in ms of wall clock.

    A kept transaction (KIP-939) has two identities: `producer`, which its records and markers bear,
    and `client`, which alone may end it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions of the transaction; once it is decided, those that wait for a marker."""
    start_ms: int = NO_TIMESTAMP
    last_epoch: int = NO_EPOCH
    """The epoch before the last bump, if its holder may learn the current one by asking again."""
    client_version: int = TV0
    """The `transaction.version` that the client of the latest transaction speaks."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after a decided transaction that used up the last epoch of this one; with
    `next_epoch`, the client of a kept transaction, or the producer after a kept one."""
    next_epoch: int = NO_EPOCH
    ended: Producer | None = None
    """The producer of the records of a kept transaction that was decided, for the search of lost
    markers. None if another transaction may have had its epoch."""
    owner: str | None = None
    """The principal to which the producer id was given; None without an authorizer, and for a super
    user."""

    @property
    def exhausted(self) -> bool:
        """Whether the next bump would leave no epoch for the client."""
        return self.client.epoch >= LAST_CLIENT_EPOCH

    @property
    def producer(self) -> Producer:
        return _new(Producer, (self.producer_id, self.epoch))

    @property
    def is_kept(self) -> bool:
        """Whether InitProducerId has kept the open transaction for another client (KIP-939)."""
        return self.next_epoch != NO_EPOCH and self.state is TransactionState.ONGOING

    @property
    def client(self) -> Producer:
        """The producer that may use the id: another one than `producer` from the first keep of a
        transaction until its end is complete."""
        if self.next_epoch != NO_EPOCH:
            return Producer(self.next_producer_id, self.next_epoch)
        return _new(Producer, (self.producer_id, self.epoch))

    @property
    def times_out(self) -> bool:
        """Whether an open transaction is aborted by time."""
        return self.timeout_ms != NO_TIMEOUT_MS

    @property
    def next_producer(self) -> Producer:
        """The producer after a decided transaction: another id if it used up its last epoch."""
        if self.next_epoch != NO_EPOCH:
            return self.client
        if self.client_version >= TV2 and self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return _new(Producer, (self.producer_id, self.epoch))

    def is_current(self, producer: Producer) -> bool:
        """Whether a client may use the id as this producer."""
        # No client has the epoch above the last one, and it cannot be bumped.
        producer_id, epoch = producer
        if self.next_epoch != NO_EPOCH:
            return self.client == producer and epoch <= LAST_CLIENT_EPOCH
        return (
            epoch == self.epoch and producer_id == self.producer_id and epoch <= LAST_CLIENT_EPOCH
        )

    def knows(self, producer_id: int) -> bool:
        """Whether a producer id is the client's, or that of the transaction's records."""
        return producer_id == self.producer_id or producer_id == self.client.producer_id

    # -- InitProducerId --------------------------------------------------------------------------

    def next_client(self, expected: int | None) -> NextClient:
        """Return the client with the next epoch, or with the same one for a repeated request
        (KIP-360).

        Raises PRODUCER_FENCED for an epoch that is neither the current nor the last one.
        """
        current = self.client
        bumped = current._replace(epoch=current.epoch + 1)
        if expected is None or current.epoch == NO_EPOCH:
            return NextClient(bumped, NO_EPOCH)
        if expected == current.epoch:
            return NextClient(bumped, current.epoch)
        if expected == self.last_epoch:
            return NextClient(current, self.last_epoch)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def rotated_client(self, producer_id: int, *, resumes: bool) -> NextClient:
        """Return the client with a fresh producer id at epoch 0; `resumes` if the old client
        asked."""
        return NextClient(Producer(producer_id, 0), self.client.epoch if resumes else NO_EPOCH)

    def initialised(
        self, client: NextClient, timeout_ms: int, now_ms: int, owner: str | None = None
    ) -> "TransactionMetadata":
        """Return the metadata with a new client and without a transaction."""
        check_transition(self.state, TransactionState.EMPTY)
        return self._replace(
            state=TransactionState.EMPTY,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            producer_id=client.producer.producer_id,
            epoch=client.producer.epoch,
            last_epoch=client.last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            ended=None,
            owner=owner,
        )

    def kept(
        self, client: NextClient, now_ms: int, owner: str | None = None, *, pins: bool
    ) -> "TransactionMetadata":
        """Return the open transaction with a new client; `pins` lifts its timeout (KIP-939)."""
        check_transition(self.state, TransactionState.ONGOING)
        return self._replace(
            updated_ms=now_ms,
            previous_producer_id=self.client.producer_id,
            next_producer_id=client.producer.producer_id,
            next_epoch=client.producer.epoch,
            last_epoch=client.last_epoch,
            timeout_ms=NO_TIMEOUT_MS if pins else self.timeout_ms,
            owner=owner,
        )

    # -- a transaction ---------------------------------------------------------------------------

    def with_partitions(
        self, added: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the transaction with more partitions; the first ones begin it."""
        (
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            _,
            state,
            partitions,
            start_ms,
            last_epoch,
            _,
            _,
            next_producer_id,
            next_epoch,
            _,
            owner,
        ) = self
        check_transition(state, _ONGOING)
        return _new(
            TransactionMetadata,
            (
                transactional_id,
                producer_id,
                epoch,
                timeout_ms,
                now_ms,
                _ONGOING,
                partitions.union(added),
                start_ms if state is _ONGOING else now_ms,
                last_epoch,
                client_version,
                producer_id,
                next_producer_id,
                next_epoch,
                None,
                owner,
            ),
        )

    def prepared(
        self,
        committed: bool,
        client_version: int,
        now_ms: int,
        *,
        next_producer_id: int = NO_PRODUCER_ID,
        partitions: frozenset[TopicPartition] | None = None,
    ) -> "TransactionMetadata":
        """Return the decided transaction: with TV2 it uses up its epoch, and its client's.

        `partitions` are those that need a marker (KIP-609), None for all. The markers of a kept
        transaction always have a higher epoch than its records: its producer was replaced.
        """
        (
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            _,
            state,
            own_partitions,
            start_ms,
            last_epoch,
            _,
            _,
            kept_producer_id,
            kept_epoch,
            _,
            owner,
        ) = self
        bumps, is_kept = client_version >= TV2, self.is_kept
        target = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        check_transition(state, target)
        client_id, client_epoch = self.client
        next_epoch = NO_EPOCH
        if is_kept:
            rotates = next_producer_id != NO_PRODUCER_ID
            next_producer_id = next_producer_id if rotates else kept_producer_id
            next_epoch = 0 if rotates else kept_epoch + bumps
        return _new(
            TransactionMetadata,
            (
                transactional_id,
                producer_id,
                epoch + 1 if bumps or is_kept else epoch,
                timeout_ms,
                now_ms,
                target,
                own_partitions if partitions is None else partitions,
                start_ms if state is _ONGOING else now_ms,
                client_epoch if bumps else last_epoch,
                client_version,
                client_id,
                next_producer_id,
                next_epoch,
                self._kept_producer if is_kept else None,
                owner,
            ),
        )

    def fenced(self, client_version: int, now_ms: int) -> "TransactionMetadata":
        """Return the aborted transaction of a fenced producer, which cannot resume its epoch."""
        check_transition(self.state, TransactionState.PREPARE_ABORT)
        return self._replace(
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
            previous_producer_id=self.client.producer_id,
            epoch=self.epoch + 1,
            next_epoch=self.next_epoch + 1 if self.is_kept else NO_EPOCH,
            last_epoch=NO_EPOCH,
            client_version=client_version,
            ended=self._kept_producer,
        )

    @property
    def _kept_producer(self) -> Producer | None:
        # In the older protocol its epoch may have had other transactions.
        return self.producer if self.is_kept and self.client_version >= TV2 else None

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Return the completed transaction: every marker is written."""
        (
            transactional_id,
            own_producer_id,
            _,
            timeout_ms,
            _,
            state,
            _,
            start_ms,
            last_epoch,
            client_version,
            previous_producer_id,
            next_producer_id,
            next_epoch,
            ended,
            owner,
        ) = self
        committed = state is TransactionState.PREPARE_COMMIT
        target = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        check_transition(state, target)
        producer_id, epoch = self.next_producer
        was_kept = next_epoch != NO_EPOCH
        rotates = was_kept or producer_id != own_producer_id
        return _new(
            TransactionMetadata,
            (
                transactional_id,
                producer_id,
                epoch,
                timeout_ms,
                now_ms,
                target,
                _NO_PARTITIONS,
                start_ms,
                last_epoch,
                client_version,
                # The client that ended a kept transaction may repeat its EndTxn.
                previous_producer_id if was_kept else own_producer_id,
                NO_PRODUCER_ID if rotates else next_producer_id,
                NO_EPOCH,
                ended,
                owner,
            ),
        )


class Markers(NamedTuple):
    """The markers of a decided transaction: one in each partition."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int

    @classmethod
    def of(cls, txn: TransactionMetadata) -> "Markers":
        """Return the markers of a transaction in a PREPARE state."""
        committed = txn.state is TransactionState.PREPARE_COMMIT
        producer = _new(Producer, (txn.producer_id, txn.epoch))
        return _new(
            cls, (txn.transactional_id, producer, committed, txn.partitions, txn.client_version)
        )
