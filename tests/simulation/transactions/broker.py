"""The brokers of the simulation: a transaction coordinator and partitions, real but for their
disks, and what carries markers from the one to the others."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.ending import Markers
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.waiting import WaitingRoom
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import ControlType, Marker, build_marker, read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.validator import Origin
from barnabas.storage.verification import Guard
from tests.unit.coordinator.harness import FakeLog, Time

WriteSpoken = Callable[[str], None]
"""Told of each write, when it is in the log and before it is committed; may end the process."""
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class CoordinatorLog(FakeLog):
    """The log of the transaction topic. What is not committed may be lost in a crash."""

    def __init__(self, batches: list[bytes], leader_epoch: int, wrote: WriteSpoken) -> None:
        super().__init__(batches=batches, leader_epoch=leader_epoch)
        self.committed = self.end_offset
        self._wrote = wrote

    def append(
        self,
        batch: bytes,
        now_ms: int,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> int:
        held, self.held = self.held, True
        try:
            end = super().append(batch, now_ms, guard, transaction_version)
            self._wrote("coordinator")
        finally:
            self.held = held
        if not held:
            self.commit(end)
        return end


class DataPartition:
    """One partition: what it knows of producers is real, and survives as its batches do."""

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
        guard: Guard | None = None,
        transaction_version: int = 0,
    ) -> None:
        header = read_header(batch)
        update = self.producers.prepare(
            batch,
            [(0, header)],
            origin=origin,
            base_offset=self.end_offset,
            guard=guard,
            transaction_version=transaction_version,
        )
        if update.duplicate is not None:
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
        committed = marker.type is ControlType.COMMIT
        self.markers[header.producer_id] = header.producer_epoch, committed
        for value in self.open.pop(header.producer_id, ()):
            assert value not in self.outcomes, f"{value!r} is in the log twice"
            self.outcomes[value] = committed

    def reload(self) -> None:
        """Another leader, or the same one again: what was never written down is gone."""
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
    """A decided transaction, as its coordinator of one election carries it on."""

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
        wrote: WriteSpoken,
        post_marker: Callable[[Unfinished, TopicPartition], None],
    ) -> None:
        self.time = Time()
        self.version = 2
        self.partitions = {place: DataPartition(place, wrote) for place in places}
        self.unfinished: dict[str, Unfinished] = {}
        self.faults: list[BaseException] = []
        self.log = CoordinatorLog([], 0, wrote)
        self._settings = settings
        self._wait_ms = wait_ms
        self._wrote = wrote
        self._post_marker = post_marker
        self._ids = Ids()
        self._start()

    def _start(self) -> None:
        room = WaitingRoom(self.time, lambda: self._wait_ms)
        runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            lambda: TransactionShard(
                self._settings,
                take_producer_id=self._ids.take,
                transaction_version=lambda: self.version,
                settled=room.wake,
            ),
            clock=self.time,
            timers=self.time,
            write_timeout_ms=5000,
            load_buffer_bytes=1 << 20,
            send=self._send,
            report=lambda _, error: self.faults.append(error),
        )
        self.runtime, self.room = runtime, room
        self.coordinator = TransactionCoordinator(
            runtime,
            room,
            settings=self._settings,
            producer_ids=self._ids,
            clock=self.time,
            timers=self.time,
            partitions=lambda: 1,
        )

    async def elect(self, surviving: int) -> None:
        """The coordinator is gone; another one has what was committed and `surviving` batches
        of what was not."""
        self.runtime.resigned(0)
        self.room.wake_all()
        self.time.forget()
        self.unfinished.clear()
        old = self.log
        kept = sum(read_header(each).next_offset <= old.committed for each in old.batches)
        self.log = CoordinatorLog(
            old.batches[: kept + surviving], old.leader_epoch + 1, self._wrote
        )
        self._start()
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)

    # -- markers ---------------------------------------------------------------------------------

    def _send(self, _index: int, coordinator_epoch: int, markers: Markers) -> None:
        unfinished = Unfinished(coordinator_epoch, markers)
        self.unfinished[markers.transactional_id] = unfinished
        for place in sorted(markers.partitions):
            self._post_marker(unfinished, place)

    def write_marker(self, unfinished: Unfinished, place: TopicPartition) -> bool:
        """A partition gets a marker, perhaps from a coordinator that is not one any more; whether
        it takes it."""
        markers = unfinished.markers
        kind = ControlType.COMMIT if markers.committed else ControlType.ABORT
        batch = build_marker(
            Marker(kind, unfinished.coordinator_epoch),
            offset=0,
            timestamp=self.time.now_ms(),
            producer_id=markers.producer.producer_id,
            producer_epoch=markers.producer.epoch,
        )
        try:
            self.partitions[place].append(
                batch,
                origin=Origin.COORDINATOR,
                transaction_version=markers.transaction_version,
            )
        except KafkaError as error:
            if error.code not in _FENCED or self._carries_on(unfinished):
                raise AssertionError(f"{markers} is refused for good") from error
            return False
        return True

    def marked(self, unfinished: Unfinished, place: TopicPartition) -> None:
        """The coordinator hears of a marker that is written."""
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
        """Verified or added as by a broker; `pause` is the way back from the coordinator."""
        partition = self.partitions[place]

        def begin() -> Guard | None:
            claim = Claim(transactional_id, *producer, sequence, adds)
            return partition.producers.begin_verification(claim)

        guard = begin()
        if guard is not None:
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
        """Whether it had to wait, perhaps for a marker that has taken the guard away."""
        try:
            if adds:
                answer = self.coordinator.add_for_leader(transactional_id, producer, [place])
                if isinstance(answer, asyncio.Future):
                    await answer
                    return True
                return False
            code = self.coordinator.verify(transactional_id, producer, [place])[place]
        except KafkaError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH) from None
            raise
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return False
