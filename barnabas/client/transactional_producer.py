"""The transactional producer: a transaction is read as a whole or not at all (KIP-98).

A transaction may include the offsets of consumed records:

    async with TransactionalProducer(cluster, "orders-1") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("shipped", b"...")
            await producer.send_offsets_to_transaction({("orders", 0): 42}, "shippers")

With `two_phase` the outcome may be decided elsewhere (KIP-939). Store the prepared transaction with
the decision. After a crash `init_transactions(keep_prepared=True)` and `complete_transaction` carry
it out:

    prepared = await producer.prepare_transaction()
    ...  # write str(prepared) and the decision to a database, in one transaction there
    await producer.complete_transaction(prepared)

The newer protocol (KIP-890) is used if the finalized `transaction.version` of the cluster is 2.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Self

from barnabas.client.cluster import Cluster
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.producer import ALL, Producer, ProducerSettings
from barnabas.client.producing.partition_queue import Delivered, ProducerIdAndEpoch
from barnabas.client.transactions.manager import TransactionManager
from barnabas.client.transactions.state import (
    AbortableError,
    FatalError,
    PreparedTransaction,
    State,
    TransactionStateError,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition

__all__ = [
    "AbortableError",
    "Delivered",
    "FatalError",
    "GroupMetadata",
    "PreparedTransaction",
    "State",
    "TransactionStateError",
    "TransactionalProducer",
]


class TransactionalProducer(Producer):
    """A producer with a `transactional_id`; only one instance at a time can commit.

    `transaction_timeout` is in s: the coordinator aborts a transaction that is open for longer.
    With `two_phase` it has no timeout: only this producer or a later instance ends it (KIP-939).
    Any call may raise AbortableError: then call `abort_transaction`; FatalError: then close the
    producer; TransactionStateError: the call is not allowed in the current state; TimeoutError: the
    result is unknown, and commit, abort and init may be called again.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        settings: ProducerSettings | None = None,
        *,
        transaction_timeout: float = 60.0,
        two_phase: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(cluster, settings, now=now)
        if self._settings.acks != ALL or not self._settings.idempotent:
            raise ValueError("transactions need acks=ALL and idempotence")
        self._two_phase = two_phase
        self._manager = TransactionManager(
            cluster, transactional_id, transaction_timeout, two_phase=two_phase
        )
        self._sender = self._make_sender(self._manager, transactional=True)
        self._manager.sender = self._sender
        self._check = self._manager.check

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Abort the open transaction; a prepared one stays open."""
        try:
            # After a fatal error there is nothing to abort: another instance owns the id.
            with suppress(FatalError):
                if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                    await self.abort_transaction()
        finally:
            await self.abandon()

    @property
    def state(self) -> State:
        """The state of the producer."""
        return self._manager.machine.state

    @property
    def speaks_newer_protocol(self) -> bool:
        """Whether the open transaction uses KIP-890, and so has its own epoch."""
        return self._manager.adds_partitions_implicitly

    @property
    def retries(self) -> int:
        """The number of requests to coordinators that were retried."""
        return self._manager.retries

    @property
    def unanswered(self) -> int:
        """The number of requests to coordinators whose response was lost.

        Such a request may arrive much later: an InitProducerId then aborts the open transaction.
        """
        return self._manager.unanswered

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the open transaction, or of the next one.

        Raises TransactionStateError before `init_transactions`.
        """
        identity = self._manager.identity()
        if identity is None:
            raise TransactionStateError("the producer has no producer id yet")
        return identity

    async def init_transactions(self, *, keep_prepared: bool = False) -> None:
        """Take over the transactional id: fence earlier instances and abort their transaction.

        Must be called once, before the first transaction. With `keep_prepared` an open transaction
        is not aborted but PREPARED: complete it (KIP-939). FatalError UNSUPPORTED_VERSION: the
        brokers do not serve two-phase commit, see `transaction.two.phase.commit.enable`.
        """
        await self._manager.initialise(keep_prepared=keep_prepared)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Send the queued records, and return the transaction that can only be completed now.

        Store the result with the decision elsewhere. After a crash, `init_transactions` with
        `keep_prepared` and `complete_transaction` carry out the decision. If a record fails, raises
        its error instead.
        """
        if not self._two_phase:
            raise TransactionStateError("prepare_transaction needs a producer with two_phase=True")
        self._manager.machine.expect(State.IN_TRANSACTION)
        await self.flush()
        return self._manager.prepare()

    async def complete_transaction(self, decided: PreparedTransaction) -> None:
        """Commit the prepared transaction if it is `decided`, and abort it otherwise."""
        prepared = self._manager.prepared
        if prepared is None:
            self._manager.machine.refuse("no transaction is prepared")
        if prepared == decided:
            await self.commit_transaction()
        else:
            await self.abort_transaction()

    async def begin_transaction(
        self,
        partitions: Collection[TopicPartition] | None = None,
        group_id: str | None = None,
    ) -> None:
        """Begin a transaction.

        With `partitions` or `group_id`, everything that the transaction will write is registered in
        one request (KIP-609): then a record for another partition raises
        UNKNOWN_TOPIC_OR_PARTITION, and offsets of another group raise INVALID_GROUP_ID. A broker
        without KIP-609, such as Apache Kafka, raises UNSUPPORTED_VERSION; the producer stays ready.
        """
        await self._manager.begin(partitions, group_id)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: str | GroupMetadata
    ) -> None:
        """Commit offsets of a group with the transaction; each is that of the next record to read.

        With a GroupMetadata (`GroupMember.metadata`) a member that the group has removed is fenced
        (KIP-447); with a group id alone it is not.
        """
        if isinstance(group, str):
            group = GroupMetadata(group)
        await self._manager.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Send the queued records and commit; if a record fails, raise its error instead."""
        machine = self._manager.machine
        machine.expect(State.IN_TRANSACTION, State.PREPARED, State.COMMITTING)
        machine.move_to(State.COMMITTING)
        await self.flush()
        await self._manager.end(commit=True)

    async def abort_transaction(self) -> None:
        """Drop the queued records and abort; afterwards the producer is ready again."""
        machine = self._manager.machine
        machine.expect(State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR, State.ABORTING)
        machine.move_to(State.ABORTING)
        error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        unknown = self._sender.drop(error)
        await self._sender.wait_for_answers()
        if self._sender.drop(error) or unknown:
            self._manager.require_new_epoch()
        await self._manager.end(commit=False)

    @asynccontextmanager
    async def transaction(
        self,
        partitions: Collection[TopicPartition] | None = None,
        group_id: str | None = None,
    ) -> AsyncIterator["TransactionalProducer"]:
        """Run a block in a transaction: commit at its end, or abort if it raises."""
        await self.begin_transaction(partitions, group_id)
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                await self.abort_transaction()
            raise

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        chosen = super()._choose(topic, key, count)
        if key is not None:
            return chosen
        registered = self._manager.registered_partitions(topic)
        return registered[chosen % len(registered)] if registered else chosen
