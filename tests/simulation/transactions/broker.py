"""The brokers of the simulation: a transaction coordinator and partitions, real except for their
disks, and the carrier of markers between them."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    TransactionRuntime,
    TransactionShard,
)
from barnabas.coordinator.transaction.metadata import TV2, Markers, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.transactional_id import Expectation
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_SEQUENCE, read_header
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import DuplicateSequence
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import VerificationGuard
from tests.support.coordinator.harness import UNCHANGED, FakeLog, Time

WriteSpoken = Callable[[str], None]
"""Called for each write when it is in the log and before it is committed; may end the process."""
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class CoordinatorLog(FakeLog):
    """The log of the transaction topic. Uncommitted records may be lost in a crash."""

    def __init__(
        self, batches: list[bytes], leader_epoch: int, wrote: WriteSpoken, *, commits_at_once: bool
    ) -> None:
        super().__init__(
            batches=batches, leader_epoch=leader_epoch, commits_at_once=commits_at_once
        )
        self.committed = self.end_offset
        self._wrote = wrote

    def append(
        self,
        batch: bytes,
        now_ms: int,
        header: object = None,
        guard: object | None = None,
        marker: TxnMarker | None = None,
    ) -> int:
        held, self.held = self.held, True
        try:
            end = super().append(batch, now_ms, header, guard, marker)
            self._wrote("coordinator")
        finally:
            self.held = held
        if not held:
            self.commit(end)
        return end


class DataPartition:
    """One partition: its producer state is real, and survives as its batches do."""

    def __init__(self, place: TopicPartition, wrote: WriteSpoken) -> None:
        self.place = place
        self.batches: list[bytes] = []
        self.producers = ProducerStateManager()
        self.open: dict[int, list[bytes]] = {}
        """Records of open transactions, by producer id."""
        self.outcomes: dict[bytes, bool] = {}
        self.markers: dict[int, tuple[int, bool]] = {}
        """The latest marker of each producer id: its epoch, and whether it commits."""
        self.end_offset = 0
        self._wrote = wrote

    def append(
        self,
        batch: bytes,
        *,
        origin: Origin,
        guard: VerificationGuard | None = None,
        marker: TxnMarker | None = None,
    ) -> None:
        header = read_header(batch)
        try:
            update = self.producers.prepare(
                batch,
                [(0, header)],
                origin=origin,
                base_offset=self.end_offset,
                guard=guard,
                marker=marker,
            )
        except DuplicateSequence:
            return
        self.end_offset += header.last_offset_delta + 1
        self.batches.append(batch)
        self.producers.commit(update, self.end_offset)
        self.producers.on_high_watermark(self.end_offset)
        self._take_note(batch)
        self._wrote(f"{self.place}")

    def _take_note(self, batch: bytes) -> None:
        header = read_header(batch)
        if not header.is_control:
            values = [each.value or b"" for each in iter_records(batch, 0, header)]
            self.open.setdefault(header.producer_id, []).extend(values)
            return
        marker = read_marker(batch, 0, header)
        assert marker is not None
        committed = marker.committed
        self.markers[header.producer_id] = header.producer_epoch, committed
        for value in self.open.pop(header.producer_id, ()):
            assert value not in self.outcomes, f"{value!r} is in the log twice"
            self.outcomes[value] = committed

    def reload(self) -> None:
        """Restart or move the partition: state that was never written is lost."""
        self.producers = ProducerStateManager()
        offset = 0
        for batch in self.batches:
            header = read_header(batch)
            update = self.producers.prepare(
                batch, [(0, header)], origin=Origin.REPLICATION, base_offset=offset
            )
            offset += header.last_offset_delta + 1
            self.producers.commit(update, offset)
        self.producers.on_high_watermark(offset)


class Unfinished:
    """A decided transaction, as the coordinator of one election completes it."""

    def __init__(self, coordinator_epoch: int, markers: Markers) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.markers = markers
        self.waiting = set(markers.partitions)


class Ids:
    def __init__(self) -> None:
        self._next = count(1000)

    def take(self) -> int:
        return next(self._next)

    async def refill(self) -> None:
        raise AssertionError("ids are always at hand")


class Brokers:
    """A coordinator, partitions, and the markers between them."""

    def __init__(
        self,
        places: list[TopicPartition],
        *,
        settings: TransactionSettings,
        wait_ms: int,
        gathers: bool,
        wrote: WriteSpoken,
        post_marker: Callable[[Unfinished, TopicPartition], None],
    ) -> None:
        """With `gathers`, decisions are appended together when time passes."""
        self.time = Time()
        self.version = 2
        self.partitions = {place: DataPartition(place, wrote) for place in places}
        self.unfinished: dict[str, Unfinished] = {}
        self.faults: list[BaseException] = []
        self.log = CoordinatorLog([], 0, wrote, commits_at_once=not gathers)
        self._settings = settings
        self._wait_ms = wait_ms
        self._wrote = wrote
        self._post_marker = post_marker
        self._ids = Ids()
        self._start()

    def _start(self) -> None:
        self.waiters = TransactionWaiters(self.time, lambda: self._wait_ms)

        def new_shard(_index: int, leader_epoch: int) -> TransactionShard:
            return TransactionShard(
                TransactionTable(
                    self._settings,
                    take_producer_id=self._ids.take,
                    transaction_version=lambda: self.version,
                    verification=lambda: True,
                    send_markers=partial(self._send, leader_epoch),
                    marked=lambda *asked: self.coordinator.markers_written(*asked),
                    free=self.waiters.wake,
                    expect=self._expect,
                )
            )

        self.runtime: TransactionRuntime = CoordinatorRuntime(
            new_shard,
            clock=self.time,
            timers=self.time,
            slices=Slicer(self.time.monotonic),
            write_timeout_ms=5000,
            load_buffer_bytes=1 << 20,
            report=lambda _, error: self.faults.append(error),
        )
        self.coordinator = TransactionCoordinator(
            self.runtime,
            self.waiters,
            settings=self._settings,
            producer_ids=self._ids,
            clock=self.time,
            timers=self.time,
            partitions=lambda: 1,
            metadata=UNCHANGED,
        )

    def _expect(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        principal: str | None,
    ) -> dict[TopicPartition, Expectation]:
        told = {}
        for each in partitions:
            claim = Claim(transactional_id, *producer, NO_SEQUENCE, False, principal)
            expectation = self.partitions[each].producers.expect(claim, self.log.leader_epoch)
            if expectation is not None:
                told[each] = expectation
        return told

    async def elect(self, surviving: int, *, crashed: bool = True) -> None:
        """Replace the coordinator; the next one has the committed batches and `surviving`
        others. One that has not `crashed` resigns in order."""
        if crashed:
            self.log.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.runtime.resigned(0)
        self.waiters.wake_all()
        self.time.forget()
        self.unfinished.clear()
        old = self.log
        kept = sum(read_header(each).next_offset <= old.committed for each in old.batches)
        self.log = CoordinatorLog(
            old.batches[: kept + surviving],
            old.leader_epoch + 1,
            self._wrote,
            commits_at_once=old.commits_at_once,
        )
        self._start()
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)

    # -- markers ---------------------------------------------------------------------------------

    def _send(self, coordinator_epoch: int, markers: Markers, _now_ms: int) -> None:
        unfinished = Unfinished(coordinator_epoch, markers)
        self.unfinished[markers.transactional_id] = unfinished
        for place in sorted(markers.partitions):
            self._post_marker(unfinished, place)

    def write_marker(self, unfinished: Unfinished, place: TopicPartition) -> bool:
        """Write a marker, perhaps of a deposed coordinator; return whether the partition takes
        it."""
        markers = unfinished.markers
        marker = TxnMarker(
            *markers.producer,
            unfinished.coordinator_epoch,
            markers.committed,
            markers.transaction_version,
        )
        batch, _ = marker.packed(self.time.now_ms())
        try:
            self.partitions[place].append(batch, origin=Origin.COORDINATOR, marker=marker)
        except KafkaError as error:
            if error.code not in _FENCED or self._carries_on(unfinished):
                raise AssertionError(f"{markers} is refused for good") from error
            return False
        return True

    def marked(self, unfinished: Unfinished, place: TopicPartition) -> None:
        """Tell the coordinator of a marker that was written."""
        unfinished.waiting.discard(place)
        if self._carries_on(unfinished) and not unfinished.waiting:
            markers = unfinished.markers
            del self.unfinished[markers.transactional_id]
            self.coordinator.markers_written(markers.transactional_id, markers.producer)

    def _carries_on(self, unfinished: Unfinished) -> bool:
        return self.unfinished.get(unfinished.markers.transactional_id) is unfinished

    # -- Produce ---------------------------------------------------------------------------------

    async def produce(
        self,
        transactional_id: str,
        producer: Producer,
        place: TopicPartition,
        sequence: int,
        value: bytes,
        *,
        adds: bool,
        pause: Callable[[], Any],
    ) -> None:
        """Verify or add the partition as a broker does, and append; `pause` is the response's way
        back."""
        partition = self.partitions[place]

        def begin() -> VerificationGuard | None:
            claim = Claim(transactional_id, *producer, sequence, adds)
            return partition.producers.begin_verification(claim)

        guard = begin()
        if guard is not None and not guard.answered:
            waited = await self._admit(transactional_id, producer, place, adds=adds)
            await pause()
            guard = begin() if waited else guard
        batch = build_batch(
            [Record(0, self.time.now_ms(), None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        partition.append(batch, origin=Origin.CLIENT, guard=guard)

    async def _admit(
        self, transactional_id: str, producer: Producer, place: TopicPartition, *, adds: bool
    ) -> bool:
        """Return whether it had to wait, perhaps for a marker that has removed the guard."""
        try:
            if adds:
                answer = self.coordinator.add_partitions(
                    AddPartitions(transactional_id, producer, [place], TV2)
                )
                if isinstance(answer, asyncio.Future):
                    await answer
                    return True
                return False
            question = VerifyPartitions(transactional_id, producer, [place], None)
            code = self.coordinator.verify(question)[place]
        except KafkaError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH) from None
            raise
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return False
