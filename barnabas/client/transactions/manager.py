"""The transactions of one transactional id: producer id, open transaction and protocol.

In the older protocol the client adds each partition before its first record, and all transactions
have the same epoch. In the newer protocol leaders add partitions themselves, and every transaction
has its own epoch (KIP-890). The `transaction.version` of the cluster is checked again for
each transaction.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field

from barnabas.client.cluster import Cluster
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.producing.partition_queue import PartitionQueue, ProducerIdAndEpoch
from barnabas.client.producing.sender import Sender
from barnabas.client.transactions.requests import TransactionCalls
from barnabas.client.transactions.state import (
    AbortableError,
    FatalError,
    PreparedTransaction,
    State,
    StateMachine,
    TransactionStateError,
    as_error,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.messages import produce
from barnabas.protocol.topic_partition import TopicPartition

REGISTRATION = "barnabas.transaction.registration"
"""The feature of brokers that understand the tags of KIP-609; Apache Kafka would ignore them."""

_OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(slots=True)
class CurrentTransaction:
    """The open transaction of the producer: its partitions and groups so far."""

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
    is_uncertain: bool = False
    """Whether a request got no response: the coordinator may know of the transaction or not."""
    is_kept: bool = False
    """Whether an earlier instance began it, and this one only ends it (KIP-939)."""

    @property
    def is_registered(self) -> bool:
        """Whether everything it may write was registered in advance (KIP-609)."""
        return self.registered is not None

    @property
    def is_known(self) -> bool:
        """Whether the coordinator may know of the transaction; otherwise none must be ended."""
        if self.newer and (self.written or self.committing_groups):
            return True
        return bool(self.added or self.groups or self.is_uncertain or self.is_kept)


class TransactionManager:
    """The transaction manager of a `TransactionalProducer`; the session of its sender."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout: float, *, two_phase: bool
    ) -> None:
        self.machine = StateMachine()
        self.open: CurrentTransaction | None = None
        self.prepared: PreparedTransaction | None = None
        self.sender: Sender | None = None
        self._cluster = cluster
        self._key = transactional_id
        self._timeout_ms = int(timeout * 1000)
        self._two_phase = two_phase
        self._calls = TransactionCalls(cluster, transactional_id)
        self._identity: ProducerIdAndEpoch | None = None
        self._newer = False
        self._needs_epoch = False
        """Whether sequences are unknown, so that the next transaction needs a new epoch."""
        self._adding: asyncio.Task[None] | None = None

    # -- the session of the sender ---------------------------------------------------------------

    @property
    def transactional_id(self) -> str:
        return self._key

    @property
    def retries(self) -> int:
        return self._calls.retries

    @property
    def unanswered(self) -> int:
        return self._calls.unanswered

    @property
    def error(self) -> Exception | None:
        return self.machine.error

    @property
    def adds_partitions_implicitly(self) -> bool:
        return self.open is not None and self.open.newer

    def identity(self) -> ProducerIdAndEpoch | None:
        return self._identity

    async def request_identity(self) -> None:
        raise TransactionStateError("the producer has no producer id yet")

    def may_send(self, queue: PartitionQueue) -> bool:
        if self.open is None or self.machine.state not in (State.IN_TRANSACTION, State.COMMITTING):
            return False
        if self.open.newer or (queue.topic, queue.partition) in self.open.added:
            return True
        if self._adding is None:
            self._adding = asyncio.create_task(self._add_partitions(self.open))
        return False

    def on_failure(self, error: Exception) -> AbortableError | FatalError:
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        meant = as_error(produce.API, error)
        self._fail(meant)
        return meant

    # -- transactions ----------------------------------------------------------------------------

    async def initialise(self, *, keep_prepared: bool) -> None:
        """Get the producer id and an epoch that fences earlier instances.

        With `keep_prepared`, continue the open transaction of an earlier instance, if any.
        """
        self.machine.expect(State.UNINITIALISED)
        self.machine.move_to(State.INITIALISING)
        try:
            self._newer = await self._calls.is_newer()
            self._identity, ongoing = await self._calls.init_producer_id(
                self._timeout_ms, two_phase=self._two_phase, keep_prepared=keep_prepared
            )
        except (AbortableError, FatalError) as error:
            self.machine.move_to(State.UNINITIALISED)
            self._fail(error)
            raise
        except BaseException:
            self.machine.move_to(State.UNINITIALISED)
            raise
        if ongoing is None:
            self.machine.move_to(State.READY)
            return
        self.open = CurrentTransaction(newer=True, is_kept=True)
        self.prepared = PreparedTransaction(*ongoing)
        self.machine.move_to(State.PREPARED)

    def prepare(self) -> PreparedTransaction:
        """Prepare the open transaction, whose records are all delivered; now it can only end."""
        self.machine.expect(State.IN_TRANSACTION)
        self.machine.move_to(State.PREPARED)
        self.prepared = PreparedTransaction(*self._require_identity())
        return self.prepared

    async def begin(
        self, partitions: Collection[TopicPartition] | None, group_id: str | None
    ) -> None:
        """Begin a transaction; register `partitions` and `group_id` with the coordinator."""
        self.machine.expect(State.READY)
        registers = partitions is not None or group_id is not None
        await self._choose_protocol(registers=registers)
        self.machine.move_to(State.IN_TRANSACTION)
        self.open = CurrentTransaction(self._newer)
        if not registers:
            return
        self.open.registered = frozenset(partitions or ())
        self.open.registered_group = group_id
        if self.open.registered or group_id is not None:
            await self._call(
                self._calls.add_partitions(self._require_identity(), self.open.registered, group_id)
            )
            self.open.added |= self.open.registered
        if group_id is not None:
            self.open.groups.add(group_id)

    def check(self, topic: str, partition: int) -> None:
        """Raise an error if the partition may not be written, else note that it is written."""
        if self.machine.state is not State.IN_TRANSACTION:
            self.machine.expect(State.IN_TRANSACTION)
        assert self.open is not None
        if (topic, partition) in self.open.written:
            return
        place = TopicPartition(topic, partition)
        if self.open.registered is not None and place not in self.open.registered:
            text = f"{topic}-{partition} is not registered with this transaction"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        self.open.written.add(place)
        if not self.open.newer and place not in self.open.added:
            self.open.to_add[place] = None

    def registered_partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that are registered with the open transaction."""
        registered = self.open.registered if self.open is not None else None
        return sorted(partition for name, partition in registered or () if name == topic)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> None:
        """Make offsets of a group part of the transaction."""
        self.machine.expect(State.IN_TRANSACTION)
        assert self.open is not None
        if self.open.is_registered and group.group_id != self.open.registered_group:
            text = f"group {group.group_id} is not registered with this transaction"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, text)
        if not offsets:
            return
        if not self.open.newer and group.group_id not in self.open.groups:
            await self._call(self._calls.add_offsets(self._require_identity(), group.group_id))
            self.open.groups.add(group.group_id)
        self.open.committing_groups.add(group.group_id)
        await self._call(
            self._calls.commit_offsets(
                self._require_identity(), group, offsets, newer=self.open.newer
            )
        )

    async def end(self, *, commit: bool) -> None:
        """End the transaction, all of whose records are completed. May be called again."""
        if self._adding is not None:
            await asyncio.wait([self._adding])
        self.machine.expect(State.COMMITTING if commit else State.ABORTING)
        # A prepared transaction has to take the outcome that was decided elsewhere.
        undecided = self.prepared is None and self.open is not None and self.open.newer
        if commit and undecided and not await self._calls.is_newer():
            text = "transaction.version was lowered meanwhile"
            error = AbortableError(ErrorCode.TRANSACTION_ABORTABLE, text)
            self._fail(error)
            raise error
        try:
            await self._end(commit=commit)
        except (AbortableError, FatalError) as error:
            self._fail(error)
            raise
        self.machine.move_to(State.READY)

    async def _end(self, *, commit: bool) -> None:
        if self.open is not None and self.open.is_known:
            try:
                self._identity = await self._calls.end(
                    self._require_identity(),
                    commit=commit,
                    newer=self.open.newer,
                    written=await self._written(self.open),
                )
            except FatalError as error:
                never_began = self.open.is_uncertain and error.code is ErrorCode.INVALID_TXN_STATE
                if commit or not never_began:
                    raise
            if self.open.newer:
                self._needs_epoch = False
        self.open = None
        self.prepared = None
        if self._needs_epoch:
            await self._bump_epoch()

    # -- details ---------------------------------------------------------------------------------

    def require_new_epoch(self) -> None:
        """Note that a batch got no response, so that the next transaction needs a new epoch."""
        self._needs_epoch = True

    def _require_identity(self) -> ProducerIdAndEpoch:
        assert self._identity is not None
        return self._identity

    def _fail(self, error: AbortableError | FatalError) -> None:
        self._needs_epoch = True
        self.machine.fail(error)
        if self.sender is not None:
            self.sender.wakeup()

    async def _call(self, call: Awaitable[None]) -> None:
        try:
            await call
        except (AbortableError, FatalError) as error:
            self._fail(error)
            raise
        except BaseException:
            if self.open is not None:
                self.open.is_uncertain = True
            raise

    async def _add_partitions(self, transaction: CurrentTransaction) -> None:
        try:
            while transaction.to_add and self.machine.error is None:
                partitions = list(transaction.to_add)
                await self._calls.add_partitions(self._require_identity(), partitions)
                transaction.added.update(partitions)
                for partition in partitions:
                    del transaction.to_add[partition]
        except (AbortableError, FatalError) as error:
            self._fail(error)
        except TimeoutError as error:
            transaction.is_uncertain = True
            self._fail(AbortableError(ErrorCode.REQUEST_TIMED_OUT, str(error)))
        finally:
            self._adding = None
            if self.sender is not None:
                self.sender.wakeup()

    async def _written(self, transaction: CurrentTransaction) -> set[TopicPartition] | None:
        """Return the partitions that need a marker (KIP-609); None for all of the transaction."""
        unused = transaction.groups - transaction.committing_groups
        if not transaction.is_registered or not (unused or transaction.added - transaction.written):
            return None
        written = set(transaction.written)
        for group in transaction.committing_groups:
            count = len((await self._cluster.topic(_OFFSETS_TOPIC)).leaders)
            written.add(TopicPartition(_OFFSETS_TOPIC, partition_for(group, count)))
        return written

    async def _choose_protocol(self, *, registers: bool) -> None:
        newer = await self._calls.is_newer()
        if registers and not await self._calls.feature_level(REGISTRATION):
            text = f"the broker does not announce {REGISTRATION} (KIP-609)"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        if newer and not self._newer:
            # The first transaction of the newer protocol needs a new epoch.
            await self._call(self._bump_epoch())
        self._newer = newer

    async def _bump_epoch(self) -> None:
        self._identity, _ = await self._calls.init_producer_id(
            self._timeout_ms, self._require_identity(), two_phase=self._two_phase
        )
        self._needs_epoch = False
