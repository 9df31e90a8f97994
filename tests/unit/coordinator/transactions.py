"""A transaction coordinator over one partition's log, with a short method for each request."""

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Any, Self

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.coordinator.ports import Shard
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import map_answer
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator, TransactionShard
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV0,
    TV2,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.coordinator.transaction.producer_ids import ProducerIdNeeded
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord, encode_record
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.coordinator.harness import UNCHANGED, WALL_MS, FakeLog, Time

ID = "x"
TIMEOUT_MS = 60_000
FIRST_ID = 1000
A, B, C = ("a", 0), ("b", 0), ("c", 0)
WRITE_TIMEOUT_MS = 5000


class Ids:
    """Producer ids from 1000 on; `dry` until they are refilled."""

    def __init__(self) -> None:
        self._next = count(FIRST_ID)
        self.last = -1
        """The latest one that was taken."""
        self.dry = False
        self.refills = 0

    def take(self) -> int:
        if self.dry:
            raise ProducerIdNeeded
        self.last = next(self._next)
        return self.last

    async def refill(self) -> None:
        await asyncio.sleep(0)
        self.refills += 1
        self.dry = False


class Transactions:
    """The coordinator of one id, its log, and the markers that it has asked for."""

    def __init__(self, *, version: int = TV2, wait_ms: int = 0, **settings: Any) -> None:
        self.time = Time()
        self.log = FakeLog()
        self.ids = Ids()
        self.version = version
        self.wait_ms = wait_ms
        self.in_touch = True
        self.verification: object | None = object()
        """None while leaders do not ask before the first record of a transaction."""
        self.expect: Any = None
        """Tells partitions of this broker whom to expect."""
        self.sent: list[Markers] = []
        self.refuses_ends = False
        """Whether the log refuses everything once markers have been sent."""
        self.leads = False
        """Whether this broker leads every partition, and writes the markers at once."""
        self.faults: list[BaseException] = []
        self.waiters = TransactionWaiters(self.time, lambda: self.wait_ms)
        self.settings = TransactionSettings(**settings)
        self.runtime = CoordinatorRuntime(
            self._new_shard,
            clock=self.time,
            timers=self.time,
            slices=Slicer(self.time.monotonic),
            write_timeout_ms=WRITE_TIMEOUT_MS,
            load_buffer_bytes=1 << 20,
            in_touch=lambda: self.in_touch,
            report=lambda _index, error: self.faults.append(error),
        )
        self.coordinator = TransactionCoordinator(
            self.runtime,
            self.waiters,
            settings=self.settings,
            producer_ids=self.ids,
            clock=self.time,
            timers=self.time,
            partitions=lambda: 1,
            metadata=UNCHANGED,
        )

    def _new_shard(self, _index: int, _leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            TransactionTable(
                self.settings,
                take_producer_id=self.ids.take,
                transaction_version=lambda: self.version,
                verification=lambda: self.verification,
                send_markers=self._send,
                marked=self.coordinator.markers_written,
                free=self.waiters.wake,
                expect=self.expect,
            )
        )

    def _send(self, markers: Markers, _now_ms: int) -> bool:
        self.sent.append(markers)
        if self.refuses_ends:
            self.log.refusal = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return self.leads

    async def load(self) -> Self:
        """Become the coordinator of the records in the log, as after an election."""
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self

    def crash(self) -> None:
        """End without a write, as a process that is killed."""
        refusal, self.log.refusal = self.log.refusal, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.runtime.resigned(0)
        self.log.refusal = refusal

    def write(self, *steps: TransactionMetadata, flexible: bool = True) -> "Transactions":
        """Put records into the log, as an earlier coordinator has written them."""
        for step in steps:
            key, value = encode_record(TransactionRecord(step.transactional_id, step, flexible))
            self.log.append(build_batch([Record(0, step.updated_ms, key, value)]), WALL_MS)
        return self

    # -- requests --------------------------------------------------------------------------------

    def init(
        self,
        expected: Producer | None = None,
        timeout_ms: int = TIMEOUT_MS,
        *,
        two_phase: bool = False,
    ) -> Any:
        asked = InitProducerId(ID, timeout_ms, expected, "host", two_phase)
        return map_answer(self.coordinator.init_producer_id(asked), lambda given: given.producer)

    def keep(
        self,
        expected: Producer | None = None,
        timeout_ms: int = TIMEOUT_MS,
        *,
        two_phase: bool = False,
    ) -> Any:
        """Take the id over, and keep its open transaction (KIP-939)."""
        asked = InitProducerId(ID, timeout_ms, expected, "keeper", two_phase, keeps=True)
        return self.coordinator.init_producer_id(asked)

    def add(self, producer: Producer, *partitions: TopicPartition, connection: int = 1) -> Any:
        """Add partitions as a client of the older protocol."""
        return self.coordinator.add_partitions(
            AddPartitions(ID, producer, partitions, TV0, connection)
        )

    def lead(self, producer: Producer, *partitions: TopicPartition) -> Any:
        """Add partitions as their leader does for a client of the newer protocol."""
        return self.coordinator.add_partitions(AddPartitions(ID, producer, partitions, TV2))

    def again(self, step: RepeatedStep, producer: Producer, commits: bool = True) -> Any:
        """Take a step as for a client that repeats it."""
        return step.again((producer, commits), self.time.now_ms())

    def verify(self, producer: Producer, *partitions: TopicPartition) -> dict[TopicPartition, str]:
        answers = self.coordinator.verify(VerifyPartitions(ID, producer, partitions, None))
        return {each: code.name for each, code in answers.items()}

    def end(
        self,
        producer: Producer,
        *,
        commits: bool = True,
        version: int = TV2,
        written: Iterable[TopicPartition] | None = None,
        connection: int = 1,
    ) -> Any:
        reported = None if written is None else frozenset(written)
        return self.coordinator.end(EndTxn(ID, producer, commits, version, reported, connection))

    def mark(self) -> None:
        """Report the latest markers as written."""
        markers = self.sent[-1]
        self.coordinator.markers_written(markers.transactional_id, markers.producer)

    async def sweep(self) -> None:
        await self.coordinator.abort_timed_out()

    # -- what has become of it -------------------------------------------------------------------

    @property
    def txn(self) -> TransactionMetadata:
        return self.coordinator.describe(ID)

    @property
    def state(self) -> str:
        return self.txn.state.value

    @property
    def left_ms(self) -> int | None:
        """The time until the open transaction is aborted."""
        return self.coordinator.events(ID).time_left_ms

    @property
    def table(self) -> TransactionTable:
        return self.runtime.read(0, lambda table: table)

    @property
    def hosted(self) -> HostedShard[TransactionTable, TransactionRecord]:
        return self.runtime._hosted[0]

    @property
    def shard(self) -> Shard[TransactionTable, TransactionRecord]:
        return self.runtime._hosted[0].shard

    # -- whole stories ---------------------------------------------------------------------------

    def ongoing(self, *partitions: TopicPartition, version: int = TV2) -> Producer:
        """Return a producer with an open transaction."""
        producer: Producer = self.init()
        (self.lead if version >= TV2 else self.add)(producer, *(partitions or (A,)))
        return producer

    def completed(self, *, commits: bool = True, version: int = TV2) -> tuple[Producer, Producer]:
        """Return a producer with a finished transaction: as it ended it, and as it goes on."""
        producer = self.ongoing(version=version)
        after = self.end(producer, commits=commits, version=version)
        self.mark()
        return producer, after


def transaction(
    state: TransactionState = TransactionState.EMPTY, epoch: int = 0, **fields: Any
) -> TransactionMetadata:
    """Return a transactional id as a log may hold it."""
    fields = {"producer_id": FIRST_ID - 1, "timeout_ms": TIMEOUT_MS, "updated_ms": WALL_MS} | fields
    return TransactionMetadata(ID, epoch=epoch, state=state, **fields)


EXHAUSTED = Producer(FIRST_ID - 1, LAST_CLIENT_EPOCH)
CLIENT_VERSIONS = (TV0, TV2)
NONE = ErrorCode.NONE.name
