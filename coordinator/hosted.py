"""One shard that is led here: its lanes, the writes that fly, its timers and those who wait.

Writes of one lane (a group, a transactional id) that depend on each other wait for each other:
a decision is always made on committed state. A write that takes too long times out its *answer*;
the decision stands, and the lane stays closed until the records are committed or leadership is
lost.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from barnabas.coordinator.decision import (
    PARKED,
    Answer,
    CancelTimer,
    Decide,
    Decision,
    Effect,
    Send,
    StartTimer,
    Ticket,
    TimerKey,
    Transaction,
    Turn,
)
from barnabas.coordinator.faults import as_coordinator, doubted
from barnabas.coordinator.ports import Clock, PartitionLog, Shard, TimerHandle, Timers
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import NO_PRODUCER_ID
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


class EndOfTransaction(NamedTuple):
    """What a transaction's coordinator has decided, for one partition of it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int

    def batch(self, now_ms: int) -> bytes:
        kind = ControlType.COMMIT if self.committed else ControlType.ABORT
        return build_marker(
            Marker(kind, self.coordinator_epoch),
            offset=0,
            timestamp=now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )


class Mode(Enum):
    """How a decision stands to the other writes of its lane."""

    EXCLUSIVE = "made when nothing of the lane flies"
    PIPELINED = "made at once, unless an exclusive one waits"
    IMMEDIATE = "made at once: it writes nothing, or its machine refuses what would overlap"


class _Asker:
    """Who waits for one response. Most are answered before anybody needs a future."""

    __slots__ = ("_timer", "answered", "future", "lane", "response", "ticket")

    def __init__(self, ticket: Ticket, lane: str) -> None:
        self.ticket = ticket
        self.lane = lane
        self.answered = False
        self.response: Any = None
        self.future: asyncio.Future[Any] | None = None
        self._timer: TimerHandle | None = None

    def answer(self, response: Any) -> None:
        """Give a response, or a KafkaError in its place; whatever comes later is dropped."""
        if self.answered:
            return
        self.answered = True
        self.response = response
        self.be_patient()
        future = self.future
        if future is not None and not future.done():
            if isinstance(response, KafkaError):
                future.set_exception(response)
            else:
                future.set_result(response)

    def give_up_with(self, timer: TimerHandle) -> None:
        self._timer = timer

    def be_patient(self) -> None:
        """Wait without a time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def outcome(self) -> "Any | asyncio.Future[Any]":
        """The response if it is there, else a future of it; raises the error that it was."""
        if not self.answered:
            self.future = asyncio.get_running_loop().create_future()
            return self.future
        if isinstance(self.response, KafkaError):
            raise self.response
        return self.response


class _Lane:
    """Writes that fly, and what waits for them, in order."""

    __slots__ = ("flying", "waiting")

    def __init__(self) -> None:
        self.flying = 0
        self.waiting: deque[tuple[_Asker, Decide, Mode]] = deque()


class Hosted(Generic[S]):
    """A shard and everything about it that is not logged."""

    def __init__(
        self,
        shard: S,
        log: PartitionLog,
        *,
        clock: Clock,
        timers: Timers,
        write_timeout_ms: int,
        compression: Compression,
        send: Callable[[Any], None],
        in_touch: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.shard = shard
        self.log = log
        self.serving = False
        self._clock = clock
        self._loop = timers
        self._write_timeout_ms = write_timeout_ms
        self._compression = compression
        self._send = send
        self._in_touch = in_touch
        self._failed = failed
        self._closed = False
        self._tickets = 0
        self._askers: dict[Ticket, _Asker] = {}
        self._lanes: dict[str, _Lane] = {}
        self._timers: dict[TimerKey, TimerHandle] = {}

    # -- life ------------------------------------------------------------------------------------

    def serve(self) -> None:
        """The log has been replayed to its end, and all of it is committed."""
        self.serving = True
        self._carry(None, "", self.shard.loaded(self._turn(0)))

    def close(self) -> None:
        """Leadership is gone: stop every timer, and send away whoever waits."""
        # What the load has frozen goes now, also where it refers to itself.
        gc.unfreeze()
        self._closed = True
        self.serving = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._lanes.clear()
        askers, self._askers = self._askers, {}
        for asker in askers.values():
            asker.answer(KafkaError(ErrorCode.NOT_COORDINATOR))

    # -- deciding --------------------------------------------------------------------------------

    def ask(self, lane: str, decide: Decide, mode: Mode) -> "Any | asyncio.Future[Any]":
        """See `CoordinatorRuntime.write`."""
        return self._begin(lane, decide, mode).outcome()

    def _begin(self, lane: str, decide: Decide, mode: Mode) -> _Asker:
        asker = self._new_asker(lane)
        queue = self._lanes.get(lane)
        if mode is Mode.IMMEDIATE or queue is None or self._may_go(queue, mode):
            self._decide(asker, decide)
        else:
            self._askers[asker.ticket] = asker
            queue.waiting.append((asker, decide, mode))
            self._limit(asker)
        return asker

    def _new_asker(self, lane: str) -> _Asker:
        self._tickets += 1
        return _Asker(self._tickets, lane)

    @staticmethod
    def _may_go(queue: _Lane, mode: Mode) -> bool:
        return not queue.waiting and (mode is Mode.PIPELINED or not queue.flying)

    def _decide(self, asker: _Asker, decide: Decide) -> None:
        try:
            decision = decide(self._turn(asker.ticket))
        except KafkaError as refusal:
            self._answer(asker, self._as_known(refusal))
            return
        self._carry(asker, asker.lane, decision)

    def look(self, look: Callable[[S], T]) -> T:
        """See `CoordinatorRuntime.read`."""
        try:
            return look(self.shard)
        except KafkaError as refusal:
            raise self._as_known(refusal) from None

    def _as_known(self, refusal: KafkaError) -> KafkaError:
        return refusal if self._in_touch() else doubted(refusal)

    def _turn(self, ticket: Ticket) -> Turn:
        return Turn(self._clock.now_ms(), int(self._clock.monotonic() * 1000), ticket)

    # -- carrying --------------------------------------------------------------------------------

    def _carry(self, asker: _Asker | None, lane: str, decision: Decision[Any]) -> None:
        """Do what was decided. Without an asker nobody waits for the response."""
        if asker is not None and decision.response is PARKED:
            self._askers[asker.ticket] = asker
            asker.be_patient()
            asker = None
        for effect in decision.effects:
            self._perform(effect)
        if decision.records:
            self._write(asker, lane, decision)
            return
        if asker is not None:
            self._answer(asker, decision.response)
        if decision.then is not None:
            self._carry(None, lane, decision.then(None, self._turn(0)))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Answer(ticket, response):
                asker = self._askers.get(ticket)
                if asker is not None:
                    self._answer(asker, response)
            case StartTimer(key, delay_ms, lane, decide):
                self._cancel(key)
                fire = partial(self._fire, key, lane, decide)
                self._timers[key] = self._loop.call_later(delay_ms / 1000, fire)
            case CancelTimer(key):
                self._cancel(key)
            case Send(message):
                self._send(message)

    def _answer(self, asker: _Asker, response: Any) -> None:
        self._askers.pop(asker.ticket, None)
        asker.answer(response)

    def _cancel(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, key: TimerKey, lane: str, decide: Decide) -> None:
        del self._timers[key]
        try:
            # Nobody waits: where the write is refused, the decision's `then` knows what follows.
            self._begin(lane, decide, Mode.EXCLUSIVE)
        except Exception as error:
            self._failed(error)

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, asker: _Asker | None, lane: str, decision: Decision[Any]) -> None:
        now_ms = self._clock.now_ms()
        transaction = decision.transaction
        guard = None if transaction is None else transaction.guard
        try:
            batch = self._batch(decision.records, transaction, now_ms)
            end = self.log.append(batch, now_ms, guard)
        except (KafkaError, ProtocolError) as error:
            refused = as_coordinator(error)
            if asker is not None:
                self._answer(asker, refused)
            if decision.then is not None:
                self._carry(None, lane, decision.then(refused, self._turn(0)))
            return
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = _Lane()
        queue.flying += 1
        if asker is not None:
            self._askers[asker.ticket] = asker
        self.log.when_committed(end, partial(self._landed, asker, lane, decision))
        if asker is not None and not asker.answered:
            self._limit(asker)

    def _batch(self, records: Sequence[Any], transaction: Transaction | None, now_ms: int) -> bytes:
        encode = self.shard.encode
        encoded = [Record(at, now_ms, *encode(record)) for at, record in enumerate(records)]
        if transaction is None:
            return build_batch(encoded, compression=self._compression)
        return build_batch(
            encoded,
            compression=self._compression,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transactional=True,
        )

    def _limit(self, asker: _Asker) -> None:
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write is not committed yet")
        asker.give_up_with(
            self._loop.call_later(
                self._write_timeout_ms / 1000, partial(self._answer, asker, error)
            )
        )

    def _landed(
        self, asker: _Asker | None, lane: str, decision: Decision[Any], error: KafkaError | None
    ) -> None:
        """The records are committed, or will not be by this leader."""
        if self._closed:
            return
        if error is not None:
            # Whether they count is the next leader's to say; this one has nothing more to serve.
            if asker is not None:
                self._answer(asker, as_coordinator(error))
            return
        queue = self._lanes[lane]
        queue.flying -= 1
        try:
            transaction = decision.transaction
            producer_id = NO_PRODUCER_ID if transaction is None else transaction.producer_id
            for record in decision.records:
                self.shard.replay(record, producer_id)
            if asker is not None:
                self._answer(asker, decision.response)
            if decision.then is not None:
                self._carry(None, lane, decision.then(None, self._turn(0)))
            self._drain(lane, queue)
        except Exception as fault:
            self._failed(fault)

    # -- markers ---------------------------------------------------------------------------------

    def end_transaction(self, end: EndOfTransaction) -> "asyncio.Future[None] | None":
        """See `CoordinatorRuntime.write_marker`."""
        now_ms = self._clock.now_ms()
        try:
            offset = self.log.append(
                end.batch(now_ms), now_ms, transaction_version=end.transaction_version
            )
        except KafkaError as error:
            raise as_coordinator(error) from None
        # A transaction has records of several lanes; the order of the log is enough for it.
        asker = self._new_asker("")
        self._askers[asker.ticket] = asker
        self.log.when_committed(offset, partial(self._ended, asker, end))
        if not asker.answered:
            self._limit(asker)
        return cast("asyncio.Future[None] | None", asker.outcome())

    def _ended(self, asker: _Asker, end: EndOfTransaction, error: KafkaError | None) -> None:
        if self._closed:
            return
        if error is not None:
            self._answer(asker, as_coordinator(error))
            return
        try:
            self.shard.replay_marker(end.producer_id, end.producer_epoch, end.committed)
        except Exception as fault:
            self._failed(fault)
            return
        self._answer(asker, None)

    def _drain(self, lane: str, queue: _Lane) -> None:
        while queue.waiting and self._lanes.get(lane) is queue:
            asker, decide, mode = queue.waiting[0]
            if mode is Mode.EXCLUSIVE and queue.flying:
                return
            queue.waiting.popleft()
            self._decide(asker, decide)
        if not queue.flying and self._lanes.get(lane) is queue:
            del self._lanes[lane]
