"""The runtime of coordinators: decide -> append -> committed -> replay -> answer.

One `CoordinatorRuntime` serves one internal topic, with one shard per partition that this broker
leads. It knows nothing of groups or transactions.

        elected                loaded, high watermark at the end
    ----------------> LOADING -----------------------------------> SERVING
                         |                                            |
                         +------------- resigned, or a fault ---------+--> gone

While a partition is loading, every request is answered with COORDINATOR_LOAD_IN_PROGRESS; once it
is gone, with NOT_COORDINATOR.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from barnabas.coordinator.client_errors import coordinator_error
from barnabas.coordinator.decision import Decision, Instant
from barnabas.coordinator.hosted_shard import HostedShard, Mode
from barnabas.coordinator.loading import load
from barnabas.coordinator.ports import Clock, PartitionLog, Shard, Slices, Timers
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps

S = TypeVar("S")
"""The state of a shard."""
R = TypeVar("R")
"""A record of its log."""
A = TypeVar("A")
T = TypeVar("T")


class CoordinatorRuntime(Generic[S, R]):
    """The shards that this broker hosts. Everything runs on the event loop."""

    def __init__(
        self,
        new_shard: Callable[[int, int], Shard[S, R]],
        *,
        clock: Clock,
        timers: Timers,
        slices: Slices,
        write_timeout_ms: int,
        load_buffer_bytes: int,
        compression: Compression = Compression.NONE,
        in_touch: Callable[[], bool] = lambda: True,
        report: Callable[[int, BaseException], None],
        prepare: Callable[[], Steps[None]] | None = None,
    ) -> None:
        """`new_shard` is called with a partition and its leader epoch, after the steps of
        `prepare`, which import what a shard needs. `report` is called with a
        partition that is no longer served because of an error. A broker that is not `in_touch`
        with the cluster may have a successor: it answers COORDINATOR_NOT_AVAILABLE in place of an
        error after which the client would give up."""
        self._new_shard = new_shard
        self._clock = clock
        self._timers = timers
        self._slices = slices
        self._write_timeout_ms = write_timeout_ms
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._in_touch = in_touch
        self._report = report
        self._prepare = prepare
        self._hosted: dict[int, HostedShard[S, R]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}

    def elected(self, index: int, log: PartitionLog) -> None:
        """Load a partition from its log: this broker leads it in a new epoch."""
        self.resigned(index)
        self._loads[index] = asyncio.create_task(
            self._host(index, log, log.leader_epoch), name=f"coordinator-load-{index}"
        )

    def resigned(self, index: int) -> None:
        """Forget a partition that another broker leads; requests that wait get NOT_COORDINATOR."""
        task = self._loads.pop(index, None)
        if task is not None:
            task.cancel()
        hosted = self._hosted.pop(index, None)
        if hosted is not None:
            hosted.close()

    async def close(self) -> None:
        """Forget every partition."""
        tasks = list(self._loads.values())
        for index in {*self._loads, *self._hosted}:
            self.resigned(index)
        if tasks:
            await asyncio.wait(tasks)

    def write(
        self,
        index: int,
        key: str,
        decide: Callable[[S, Instant], Decision[R, A]],
        mode: Mode = Mode.EXCLUSIVE,
    ) -> Soon[A]:
        """Call `decide` with the state of a partition, and carry its decision out.

        Returns the answer, as a future until it is given. Exclusive decisions of one key wait for
        all earlier writes of it, so that each is made on committed state; pipelined ones do not
        wait for writes. Raises KafkaError.
        """
        hosted = self._hosted.get(index)
        if hosted is None or not hosted.serving:
            hosted = self._serving(index)
        return hosted.write(key, decide, mode)

    def is_writing(self, index: int, key: str) -> bool:
        """Return whether a write of a key may have to wait for others."""
        hosted = self._hosted.get(index)
        return hosted is not None and hosted.is_writing(key)

    def lands_at_once(self, index: int) -> bool:
        """Return whether a write of few records of a partition is answered in the same call."""
        hosted = self._hosted.get(index)
        return hosted is not None and hosted.serving and hosted.lands_at_once

    def begin_verification(self, index: int, claim: Claim) -> object | None:
        """Return the guard for a `TransactionalProducer`; None if it needs no guard.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, and the errors of
        coordinators.
        """
        log = self._serving(index).log
        try:
            return log.begin_verification(claim)
        except KafkaError as error:
            raise coordinator_error(error) from None

    def write_marker(self, index: int, marker: TxnMarker) -> Soon[None]:
        """End a producer's transaction in a partition; answered when the state shows the end.

        An earlier answer would let the next transaction begin on the state before this one
        (KAFKA-17507). Raises KafkaError, at once or in the future: the log's refusal of a marker
        (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), and the errors of coordinators;
        an answer that comes too late is COORDINATOR_NOT_AVAILABLE, and the same marker may be
        written again.
        """
        return self._serving(index).write_marker(marker)

    def read(self, index: int, look: Callable[[S], T]) -> T:
        """Return the result of `look` on the committed state. Raises KafkaError if it is not
        served."""
        return self._serving(index).read(look)

    def hosted(self, index: int) -> HostedShard[S, R] | None:
        """Return the shard of a partition; None if it is not served."""
        hosted = self._hosted.get(index)
        return hosted if hosted is not None and hosted.serving else None

    def state(self, index: int) -> S | None:
        """Return the committed state of a partition; None if it is not served."""
        hosted = self.hosted(index)
        return None if hosted is None else hosted.shard.state

    def served(self) -> Iterator[tuple[int, S]]:
        """Yield every partition that is being served, with its state."""
        for index, hosted in self._hosted.items():
            if hosted.serving:
                yield index, hosted.shard.state

    def postponed_and_refused(self) -> int:
        """Count the records that are replayed, and that the log has refused so far."""
        postponed = [hosted.postponed for hosted in self._hosted.values()]
        return sum(len(each.records) for each in postponed if each.refused)

    @property
    def loading(self) -> bool:
        """Whether some partition is still being loaded."""
        return bool(self._loads)

    def _serving(self, index: int) -> HostedShard[S, R]:
        hosted = self._hosted.get(index)
        if hosted is None and index not in self._loads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if hosted is None or not hosted.serving:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    async def _host(self, index: int, log: PartitionLog, leader_epoch: int) -> None:
        """Make the shard of a partition, and load it."""
        try:
            if self._prepare is not None:
                await self._slices.run(self._prepare())
            hosted = HostedShard(
                self._new_shard(index, leader_epoch),
                log,
                clock=self._clock,
                timers=self._timers,
                slices=self._slices,
                write_timeout_ms=self._write_timeout_ms,
                compression=self._compression,
                in_touch=self._in_touch,
                failed=lambda error: self._failed(index, error),
            )
        except Exception as error:
            self._failed(index, error)
            return
        self._hosted[index] = hosted
        await self._load(index, hosted)

    async def _load(self, index: int, hosted: HostedShard[S, R]) -> None:
        try:
            await load(hosted.shard, hosted.log, self._clock, self._timers, self._load_buffer_bytes)
            del self._loads[index]
            hosted.serve()
        except Exception as error:
            self._failed(index, error)

    def _failed(self, index: int, error: BaseException) -> None:
        self._loads.pop(index, None)
        hosted = self._hosted.pop(index, None)
        if hosted is not None:
            hosted.close()
        self._report(index, error)
