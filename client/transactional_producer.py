"""Producing in transactions: all of it is read, or nothing (KIP-98), with the consumed offsets.

    async with TransactionalProducer(cluster, "orders-1") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("shipped", b"...")
            await producer.send_offsets_to_transaction({("orders", 0): 42}, "shippers")

The newer protocol (KIP-890) is spoken where the cluster has settled on `transaction.version` 2.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress

from barnabas.client.cluster import Cluster
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.lane import Delivered
from barnabas.client.producer import ALL, Producer, ProducerSettings
from barnabas.client.transaction_manager import TransactionManager
from barnabas.client.transaction_state import (
    AbortableError,
    FatalError,
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
    "State",
    "TransactionStateError",
    "TransactionalProducer",
]


class TransactionalProducer(Producer):
    """A producer with a `transactional_id`, of which one instance at a time can commit.

    `transaction_timeout` is in s: the coordinator aborts a transaction that is open for longer.
    Any call may raise AbortableError, after which only `abort_transaction` helps; FatalError, after
    which nothing does; TransactionStateError where it is not allowed now; and TimeoutError, which
    leaves open what became of it: commit, abort and init may then be called again.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        settings: ProducerSettings | None = None,
        *,
        transaction_timeout: float = 60.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(cluster, settings, now=now)
        if self._settings.acks != ALL or not self._settings.idempotent:
            raise ValueError("transactions need acks=ALL and idempotence")
        self._manager = TransactionManager(cluster, transactional_id, transaction_timeout)
        self._sender = self._make_sender(self._manager, transactional=True)
        self._manager.sender = self._sender

    async def __aenter__(self) -> "TransactionalProducer":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Aborts what is still open."""
        try:
            # After a fatal error there is nothing to abort: it belongs to another instance.
            with suppress(FatalError):
                if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                    await self.abort_transaction()
        finally:
            await self.abandon()

    @property
    def state(self) -> State:
        """Where the producer stands."""
        return self._manager.machine.state

    @property
    def speaks_newer_protocol(self) -> bool:
        """Whether the open transaction is one of KIP-890's, with an epoch of its own."""
        return self._manager.adds_by_writing

    @property
    def retries(self) -> int:
        """How often a coordinator had to be asked again, so far."""
        return self._manager.retries

    async def init_transactions(self) -> None:
        """Takes over the transactional id: earlier instances are fenced, their transaction aborted.

        To be called once, before the first transaction.
        """
        await self._manager.initialise()

    async def begin_transaction(
        self,
        partitions: Collection[TopicPartition] | None = None,
        group_id: str | None = None,
    ) -> None:
        """Opens a transaction.

        With `partitions` or `group_id`, all that it will write is registered in one request
        (KIP-609): a record for another partition raises UNKNOWN_TOPIC_OR_PARTITION, offsets of
        another group INVALID_GROUP_ID. UNSUPPORTED_VERSION where the broker cannot do that, as
        Apache Kafka; the producer stays ready.
        """
        await self._manager.begin(partitions, group_id)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: str | GroupMetadata
    ) -> None:
        """Commits a group's offsets, of the next records to read, together with the transaction.

        Only with a whole GroupMetadata (`GroupMember.metadata`) is a member fenced that the group
        has left behind (KIP-447).
        """
        if isinstance(group, str):
            group = GroupMetadata(group)
        await self._manager.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Sends what is queued and commits; raises the first error of any record instead."""
        machine = self._manager.machine
        machine.expect(State.IN_TRANSACTION, State.COMMITTING)
        machine.to(State.COMMITTING)
        await self.flush()
        await self._manager.end(commit=True)

    async def abort_transaction(self) -> None:
        """Drops what is queued and aborts; afterwards the producer is ready again."""
        machine = self._manager.machine
        machine.expect(State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING)
        machine.to(State.ABORTING)
        error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        unknown = self._sender.drop(error)
        await self._sender.landed()
        if self._sender.drop(error) or unknown:
            self._manager.sequences_are_unknown()
        await self._manager.end(commit=False)

    @asynccontextmanager
    async def transaction(
        self,
        partitions: Collection[TopicPartition] | None = None,
        group_id: str | None = None,
    ) -> AsyncIterator["TransactionalProducer"]:
        """A transaction that commits at the end of the block, and aborts if it raises."""
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
        registered = self._manager.registered_of(topic)
        return chosen if key is not None or not registered else registered[chosen % len(registered)]

    def _check(self, topic: str, partition: int) -> None:
        self._manager.check((topic, partition))
