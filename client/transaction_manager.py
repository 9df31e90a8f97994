"""One transactional id at work: its identity, the open transaction, and which protocol rules it.

The older protocol adds each partition before the first record and keeps its epoch from transaction
to transaction; in the newer one leaders add partitions by themselves and every transaction has an
epoch of its own (KIP-890). The cluster's `transaction.version` decides anew at each transaction.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field

from barnabas.client.cluster import TRANSACTION, Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.lane import Identity, Lane
from barnabas.client.sender import Sender
from barnabas.client.transaction_calls import TransactionCalls
from barnabas.client.transaction_state import (
    AbortableError,
    FatalError,
    Machine,
    State,
    TransactionStateError,
    as_error,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.messages import end_txn, produce
from barnabas.protocol.topic_partition import TopicPartition

TRANSACTION_VERSION = "transaction.version"
REGISTRATION = "barnabas.transaction.registration"
"""The feature of brokers that understand the tags of KIP-609; Apache Kafka would ignore them."""
FEATURES_AGE = 1.0
"""Seconds for which what a coordinator said of features is believed."""

_OFFSETS_TOPIC = "__consumer_offsets"
_EPOCH_PER_TRANSACTION = 2
_END_OF_NEWER = 5


@dataclass(slots=True)
class OpenTransaction:
    """What one transaction has done so far."""

    newer: bool
    registered: frozenset[TopicPartition] | None = None
    registered_group: str | None = None
    added: set[TopicPartition] = field(default_factory=set)
    to_add: dict[TopicPartition, None] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    """Groups whose offsets are in the transaction."""
    written: set[TopicPartition] = field(default_factory=set)
    committing_groups: set[str] = field(default_factory=set)
    """Groups whose offsets were sent."""

    is_unsure: bool = False
    """A request got no answer: whether the coordinator knows of the transaction is unknown."""

    @property
    def is_registered(self) -> bool:
        """Whether everything it may write was told in advance."""
        return self.registered is not None

    @property
    def is_known(self) -> bool:
        """Whether the coordinator may know of it; there is nothing to end otherwise."""
        if self.newer and (self.written or self.committing_groups):
            return True
        return bool(self.added or self.groups or self.is_unsure)


class TransactionManager:
    """Carries the transactions of one id, as `TransactionalProducer` wants them."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout: float) -> None:
        self.machine = Machine()
        self.open: OpenTransaction | None = None
        self.sender: Sender | None = None
        self._cluster = cluster
        self._key = transactional_id
        self._timeout_ms = int(timeout * 1000)
        self._calls = TransactionCalls(cluster, transactional_id)
        self._identity: Identity | None = None
        self._newer = False
        self._needs_epoch = False
        """Sequences are unknown, so that the next transaction needs an epoch of its own."""
        self._adding: asyncio.Task[None] | None = None

    # -- what the sender asks --------------------------------------------------------------------

    @property
    def transactional_id(self) -> str:
        return self._key

    @property
    def retries(self) -> int:
        return self._calls.retries

    @property
    def error(self) -> Exception | None:
        return self.machine.error

    @property
    def adds_by_writing(self) -> bool:
        return self.open is not None and self.open.newer

    def identity(self) -> Identity | None:
        return self._identity

    async def obtain(self) -> None:
        raise TransactionStateError("the producer has no producer id yet")

    def admits(self, lane: Lane) -> bool:
        if self.open is None or self.machine.state not in (State.IN_TRANSACTION, State.COMMITTING):
            return False
        if self.open.newer or (lane.topic, lane.partition) in self.open.added:
            return True
        if self._adding is None:
            self._adding = asyncio.create_task(self._add_partitions(self.open))
        return False

    def failed(self, error: Exception) -> AbortableError | FatalError:
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        meant = as_error(produce.API, error)
        self._fail(meant)
        return meant

    # -- the life of a transaction ---------------------------------------------------------------

    async def initialise(self) -> None:
        """Gets the producer id, and an epoch that fences whoever had the id before."""
        self.machine.expect(State.UNINITIALISED)
        self.machine.to(State.INITIALISING)
        try:
            self._newer = await self._is_newer()
            self._identity = await self._calls.init_producer_id(self._timeout_ms)
        except (AbortableError, FatalError) as error:
            self.machine.to(State.UNINITIALISED)
            self._fail(error)
            raise
        except BaseException:
            self.machine.to(State.UNINITIALISED)
            raise
        self.machine.to(State.READY)

    async def begin(
        self, partitions: Collection[TopicPartition] | None, group_id: str | None
    ) -> None:
        """Opens a transaction; what is registered is told to the coordinator at once."""
        self.machine.expect(State.READY)
        registers = partitions is not None or group_id is not None
        await self._choose_protocol(registers=registers)
        self.machine.to(State.IN_TRANSACTION)
        self.open = OpenTransaction(self._newer)
        if not registers:
            return
        self.open.registered = frozenset(partitions or ())
        self.open.registered_group = group_id
        if self.open.registered or group_id is not None:
            await self._told(
                self._calls.add_partitions(self._known(), self.open.registered, group_id)
            )
            self.open.added |= self.open.registered
        if group_id is not None:
            self.open.groups.add(group_id)

    def check(self, partition: TopicPartition) -> None:
        """Raises what forbids a record for this partition, and notes that one comes."""
        self.machine.expect(State.IN_TRANSACTION)
        assert self.open is not None
        if self.open.registered is not None and partition not in self.open.registered:
            text = f"{partition[0]}-{partition[1]} is not registered with this transaction"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        self.open.written.add(partition)
        if not self.open.newer and partition not in self.open.added:
            self.open.to_add[partition] = None

    def registered_of(self, topic: str) -> list[int]:
        """The partitions of a topic that are registered with the open transaction."""
        registered = self.open.registered if self.open is not None else None
        return sorted(partition for name, partition in registered or () if name == topic)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> None:
        """Makes a group's offsets part of the transaction."""
        self.machine.expect(State.IN_TRANSACTION)
        assert self.open is not None
        if self.open.is_registered and group.group_id != self.open.registered_group:
            text = f"group {group.group_id} is not registered with this transaction"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, text)
        if not offsets:
            return
        if not self.open.newer and group.group_id not in self.open.groups:
            await self._told(self._calls.add_offsets(self._known(), group.group_id))
            self.open.groups.add(group.group_id)
        self.open.committing_groups.add(group.group_id)
        await self._told(
            self._calls.commit_offsets(self._known(), group, offsets, newer=self.open.newer)
        )

    async def end(self, *, commit: bool) -> None:
        """Ends the transaction, whose records have met their ends. May be called again."""
        if self._adding is not None:
            await asyncio.wait([self._adding])
        self.machine.expect(State.COMMITTING if commit else State.ABORTING)
        if commit and self.open is not None and self.open.newer and not await self._is_newer():
            text = "transaction.version was lowered meanwhile"
            error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, text)
            self._fail(error)
            raise error
        try:
            await self._end(commit=commit)
        except (AbortableError, FatalError) as error:
            self._fail(error)
            raise
        self.machine.to(State.READY)

    async def _end(self, *, commit: bool) -> None:
        if self.open is not None and self.open.is_known:
            try:
                self._identity = await self._calls.end(
                    self._known(),
                    commit=commit,
                    newer=self.open.newer,
                    written=await self._written(self.open),
                )
            except FatalError as error:
                never_began = self.open.is_unsure and error.code is ErrorCode.INVALID_TXN_STATE
                if commit or not never_began:
                    raise
            if self.open.newer:
                self._needs_epoch = False
        self.open = None
        if self._needs_epoch:
            await self._take_epoch()

    # -- details ---------------------------------------------------------------------------------

    def sequences_are_unknown(self) -> None:
        """Something was under way that never got its answer."""
        self._needs_epoch = True

    def _known(self) -> Identity:
        assert self._identity is not None
        return self._identity

    def _fail(self, error: AbortableError | FatalError) -> None:
        self._needs_epoch = True
        self.machine.fail(error)
        if self.sender is not None:
            self.sender.kick()

    async def _told(self, call: Awaitable[None]) -> None:
        try:
            await call
        except (AbortableError, FatalError) as error:
            self._fail(error)
            raise
        except BaseException:
            if self.open is not None:
                self.open.is_unsure = True
            raise

    async def _add_partitions(self, transaction: OpenTransaction) -> None:
        try:
            while transaction.to_add and self.machine.error is None:
                partitions = list(transaction.to_add)
                await self._calls.add_partitions(self._known(), partitions)
                transaction.added.update(partitions)
                for partition in partitions:
                    del transaction.to_add[partition]
        except (AbortableError, FatalError) as error:
            self._fail(error)
        except TimeoutError as error:
            transaction.is_unsure = True
            self._fail(AbortableError(ErrorCode.REQUEST_TIMED_OUT, str(error)))
        finally:
            self._adding = None
            if self.sender is not None:
                self.sender.kick()

    async def _written(self, transaction: OpenTransaction) -> set[TopicPartition] | None:
        """What needs a marker (KIP-609); None where that is everything."""
        unused = transaction.groups - transaction.committing_groups
        if not transaction.is_registered or not (unused or transaction.added - transaction.written):
            return None
        written = set(transaction.written)
        for group in transaction.committing_groups:
            count = len((await self._cluster.topic(_OFFSETS_TOPIC)).leaders)
            written.add((_OFFSETS_TOPIC, partition_for(group, count)))
        return written

    async def _choose_protocol(self, *, registers: bool) -> None:
        newer = await self._is_newer()
        if registers and not await self._level(REGISTRATION):
            text = f"the broker does not announce {REGISTRATION} (KIP-609)"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        if newer and not self._newer:
            # The first transaction of the newer protocol must not share its epoch with another.
            await self._told(self._take_epoch())
        self._newer = newer

    async def _is_newer(self) -> bool:
        if await self._level(TRANSACTION_VERSION) < _EPOCH_PER_TRANSACTION:
            return False
        connection = await self._calls.connection()
        return connection.version_for(end_txn.API) >= _END_OF_NEWER

    async def _level(self, feature: str) -> int:
        loop = asyncio.get_running_loop()
        while True:
            connection = await self._calls.connection()
            try:
                if loop.time() - connection.learned_at > FEATURES_AGE:
                    await connection.learn_features(timeout=self._cluster.timeout)
            except BrokerUnreachable:
                self._cluster.forget_coordinator(self._key, TRANSACTION)
                continue
            return connection.features.get(feature, 0)

    async def _take_epoch(self) -> None:
        self._identity = await self._calls.init_producer_id(self._timeout_ms, self._known())
        self._needs_epoch = False
