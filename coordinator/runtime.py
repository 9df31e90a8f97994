"""The shell around coordinators: decide -> append -> committed -> replay -> answer.

One `CoordinatorRuntime` serves one internal topic, one shard per partition that this broker leads.
It knows nothing of groups or transactions.

        elected                loaded, high watermark at the end
    ----------------> LOADING -----------------------------------> SERVING
                         |                                            |
                         +------------- resigned, or a fault ---------+--> gone

While loading, everybody is told COORDINATOR_LOAD_IN_PROGRESS; once gone, NOT_COORDINATOR.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas.coordinator.decision import Decide
from barnabas.coordinator.faults import as_coordinator
from barnabas.coordinator.hosted import EndOfTransaction, Hosted, Mode
from barnabas.coordinator.loading import load
from barnabas.coordinator.ports import Clock, PartitionLog, Shard, Timers
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.compression import Compression

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

SendMessage = Callable[[int, int, Any], None]
"""Takes a message of a shard, with its partition and the leader epoch that decided so."""


def _send_nothing(index: int, leader_epoch: int, message: Any) -> None:
    raise NotImplementedError("nobody carries messages for this coordinator")


class CoordinatorRuntime(Generic[S]):
    """The shards that this broker hosts. Everything runs on the event loop."""

    def __init__(
        self,
        new_shard: Callable[[], S],
        *,
        clock: Clock,
        timers: Timers,
        write_timeout_ms: int,
        load_buffer_bytes: int,
        compression: Compression = Compression.NONE,
        send: SendMessage = _send_nothing,
        in_touch: Callable[[], bool] = lambda: True,
        report: Callable[[int, BaseException], None],
    ) -> None:
        """`send` takes what shards `Send`; `report` is told of a fault that made a partition stop
        being served. A broker that is not `in_touch` with the cluster may have a successor: in
        place of what would end a client's work it answers COORDINATOR_NOT_AVAILABLE."""
        self._new_shard = new_shard
        self._clock = clock
        self._timers = timers
        self._write_timeout_ms = write_timeout_ms
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._send = send
        self._in_touch = in_touch
        self._report = report
        self._hosted: dict[int, Hosted[S]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}

    def elected(self, index: int, log: PartitionLog) -> None:
        """This broker leads the partition in a new epoch: load it from its log."""
        self.resigned(index)
        hosted = Hosted(
            self._new_shard(),
            log,
            clock=self._clock,
            timers=self._timers,
            write_timeout_ms=self._write_timeout_ms,
            compression=self._compression,
            send=partial(self._send, index, log.leader_epoch),
            in_touch=self._in_touch,
            failed=lambda error: self._failed(index, error),
        )
        self._hosted[index] = hosted
        self._loads[index] = asyncio.create_task(
            self._load(index, hosted), name=f"coordinator-load-{index}"
        )

    def resigned(self, index: int) -> None:
        """Somebody else leads the partition: forget it; whoever waits is told NOT_COORDINATOR."""
        task = self._loads.pop(index, None)
        if task is not None:
            task.cancel()
        hosted = self._hosted.pop(index, None)
        if hosted is not None:
            hosted.close()

    async def close(self) -> None:
        """Forget every partition."""
        tasks = list(self._loads.values())
        for index in list(self._hosted):
            self.resigned(index)
        if tasks:
            await asyncio.wait(tasks)

    def write(
        self, index: int, lane: str, decide: Decide, mode: Mode = Mode.EXCLUSIVE
    ) -> "Any | asyncio.Future[Any]":
        """Ask a shard for a decision and see it through; the response, or a future of it.

        Exclusive decisions of one lane wait for all earlier writes of it, so that each is made on
        what is committed; pipelined ones wait for nobody. Raises KafkaError.
        """
        return self._serving(index).ask(lane, decide, mode)

    def begin_verification(self, index: int, claim: Claim) -> object | None:
        """What a `Transaction` needs as its guard, None where nothing is to be verified.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, and the errors of
        coordinators.
        """
        log = self._serving(index).log
        try:
            return log.begin_verification(claim)
        except KafkaError as error:
            raise as_coordinator(error) from None

    def write_marker(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> "asyncio.Future[None] | None":
        """End a producer's transaction in a partition; answered when the shard shows it.

        An answer that came before would let the next transaction begin on the state before this
        one (KAFKA-17507). Raises KafkaError, at once or in the future: what the log refuses a
        marker for (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), and the errors of
        coordinators; an answer that comes too late is COORDINATOR_NOT_AVAILABLE, and the same
        marker may be written again.
        """
        return self._serving(index).end_transaction(
            EndOfTransaction(
                producer_id, producer_epoch, coordinator_epoch, committed, transaction_version
            )
        )

    def read(self, index: int, look: Callable[[S], T]) -> T:
        """Look at what is committed in a shard; raises KafkaError where it is not served here."""
        return self._serving(index).look(look)

    def shards(self) -> Iterator[tuple[int, S]]:
        """Every shard that is being served, by partition."""
        for index, hosted in self._hosted.items():
            if hosted.serving:
                yield index, hosted.shard

    @property
    def loading(self) -> bool:
        """Whether some shard is still being loaded."""
        return any(not hosted.serving for hosted in self._hosted.values())

    def _serving(self, index: int) -> Hosted[S]:
        hosted = self._hosted.get(index)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not hosted.serving:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    async def _load(self, index: int, hosted: Hosted[S]) -> None:
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
