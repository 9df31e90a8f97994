"""One partition of a coordinator's topic that this broker leads: its shard, writes and timers.

Writes of one key (a group, a transactional id) that depend on each other wait for each other, so
that each decision is made on committed state. If a write takes too long, its *answer* times out;
the decision stands, and the next exclusive write of the key waits until the records are committed
or leadership is lost.

Where an append has to wait for followers or for an fsync, the records of all decisions of one
iteration of the event loop are appended together. Where it has not, a record that may be postponed
is appended together with the next one.
"""

import gc
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.coordinator.client_errors import coordinator_error, retriable
from barnabas.coordinator.decision import (
    AT_ONCE,
    Call,
    CancelTimer,
    Decision,
    DeferredAnswer,
    Instant,
    StartTimer,
    TimerKey,
    Unanswered,
)
from barnabas.coordinator.ports import Clock, PartitionLog, Shard, Slices, TimerHandle, Timers
from barnabas.coordinator.postponed import PostponedRecords
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import NO_PRODUCER_ID
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import BatchBuilder
from barnabas.protocol.steps import Steps

_DONE: Final = object()
GATHERED_BYTES: Final = 64 * 1024
"""The size of keys and values from which gathered records are appended at once."""
S = TypeVar("S")
R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")


class Mode(Enum):
    """The relation of a decision to the other writes of its key."""

    EXCLUSIVE = "made when every earlier write is committed"
    PIPELINED = "made at once, unless an exclusive one waits"
    IMMEDIATE = "made at once: it writes nothing, or its state machine refuses an overlap"


class _Waiting(NamedTuple):
    """A decision that is not made yet."""

    mode: Mode
    decide: Callable[[], None]


class _WriteQueue:
    """The writes of one key that are not committed yet, and the decisions that wait for them."""

    __slots__ = ("preparing", "uncommitted", "waiting")

    def __init__(self) -> None:
        self.uncommitted = 0
        self.preparing = False
        """Whether the records of a long write are being made, for which every decision waits."""
        self.waiting: deque[_Waiting] = deque()

    def admits(self, mode: Mode) -> bool:
        return not self.waiting and not self.blocks(mode)

    def blocks(self, mode: Mode) -> bool:
        return self.preparing or (mode is Mode.EXCLUSIVE and self.uncommitted > 0)


class _Write(NamedTuple, Generic[R, A]):
    """A decision with records."""

    key: str
    decision: Decision[R, A]
    answer: DeferredAnswer[A] | None
    encoded: Sequence[tuple[bytes, bytes | None]]
    """Keys and values of the records."""

    @property
    def size(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self.encoded)


class HostedShard(Generic[S, R]):
    """A shard with its state that is not logged: writes in flight, unanswered requests and
    timers."""

    def __init__(
        self,
        shard: Shard[S, R],
        log: PartitionLog,
        *,
        clock: Clock,
        timers: Timers,
        slices: Slices,
        write_timeout_ms: int,
        compression: Compression,
        in_touch: Callable[[], bool],
        direct: bool = True,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.shard = shard
        self.log = log
        self.serving = False
        self._clock = clock
        self._loop = timers
        self._slices = slices
        self._write_timeout_ms = write_timeout_ms
        self._compression = compression
        self._in_touch = in_touch
        self._direct = direct and not compression
        """Whether decisions may take the direct way."""
        self._failed = failed
        self.postponed = PostponedRecords(log, clock, timers, failed)
        self._closed = False
        self._unanswered: dict[Unanswered, None] = {}
        self._queues: dict[str, _WriteQueue] = {}
        self._gathered: list[_Write[R, Any]] = []
        """The writes of this iteration of the event loop, in the order of their decisions."""
        self._gathered_bytes = 0
        self._replays: deque[Steps[None]] | None = None
        """The replays after a long one that has begun, in the order of the log."""
        self._timers: dict[TimerKey, TimerHandle] = {}

    def serve(self) -> None:
        """Begin to serve: the log has been replayed to its end, and all of it is committed."""
        self.serving = True
        self._carry_out("", self.shard.loaded(self._now()), None)

    def close(self) -> None:
        """Stop every timer, and answer every request with NOT_COORDINATOR: leadership is lost."""
        # The load has frozen objects. They are freed now, even those that form cycles.
        gc.unfreeze()
        self.postponed.close()
        self._closed = True
        self.serving = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queues.clear()
        self._gathered.clear()
        for request in list(self._unanswered):
            request.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

    # -- deciding --------------------------------------------------------------------------------

    def write(
        self, key: str, decide: Callable[[S, Instant], Decision[R, A]], mode: Mode
    ) -> Soon[A]:
        """See `CoordinatorRuntime.write`."""
        if self.is_direct:
            return self.write_directly(key, decide)
        answer: DeferredAnswer[A] = DeferredAnswer()
        queue = self._queues.get(key)
        if mode is Mode.IMMEDIATE or queue is None or queue.admits(mode):
            self._decide(key, decide, answer)
        else:
            queue.waiting.append(_Waiting(mode, partial(self._decide, key, decide, answer)))
            self._keep(answer)
        return answer.outcome()

    @property
    def is_direct(self) -> bool:
        """Whether a write of one record is committed and answered before `write` returns."""
        return (
            self._direct and not self._queues and self._replays is None and self.log.commits_at_once
        )

    def write_directly(self, key: str, decide: Callable[[S, Instant], Decision[R, A]]) -> Soon[A]:
        """Decide, append, replay and answer in one go, if the decision is one plain record.

        The shard `is_direct`: nothing is uncommitted, so that the writes need no queue.
        """
        now = self._now()
        try:
            decision = decide(self.shard.state, now)
        except KafkaError as refusal:
            error = self._unless_replaced(refusal)
            raise KafkaError(error.code, error.message) from None
        known, records, effects, then, producer, steps, postpones = decision
        if (
            len(records) != 1
            or effects
            or producer is not None
            or steps is not None
            or isinstance(known, (DeferredAnswer, KafkaError))
        ):
            answer: DeferredAnswer[A] = DeferredAnswer()
            self._carry_out(key, decision, answer)
            return answer.outcome()
        postponed = self.postponed
        postpones = postpones and postponed.takes(now.monotonic_ms)
        end = -1
        try:
            encoded = self.shard.encode(records[0])
            if not postpones:
                end = postponed.append(encoded, now.wall_ms)
        except (KafkaError, ProtocolError) as error:
            self._refuse(_Write(key, decision, None, ()), error)
            raise coordinator_error(error) from None
        if self.log.committed_end < end:
            answer = DeferredAnswer()
            self._begin(key)
            write = _Write(key, decision, answer, (encoded,))
            self.log.when_committed(end, partial(self._committed, [write]))
            self._keep_unless_given(answer)
            return answer.outcome()
        try:
            self.shard.replay(records[0], NO_PRODUCER_ID)
            if postpones:
                postponed.add(encoded, now.monotonic_ms)
        except Exception as fault:
            self._failed(fault)
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from None
        if then is not None:
            self._go_on(key, then, now)
        return known

    def _go_on(
        self,
        key: str,
        then: Callable[[KafkaError | None, Instant], Decision[R, None]],
        now: Instant,
    ) -> None:
        try:
            decision = then(None, now)
            if decision.records or decision.effects or decision.then or decision.steps:
                self._carry_out(key, decision, None)
        except Exception as fault:
            self._failed(fault)

    def _decide(
        self,
        key: str,
        decide: Callable[[S, Instant], Decision[R, A]],
        answer: DeferredAnswer[A],
    ) -> None:
        try:
            decision = decide(self.shard.state, self._now())
        except KafkaError as refusal:
            # Its frames have the answer, in a cycle.
            answer.give(self._unless_replaced(refusal).with_traceback(None))
            return
        self._carry_out(key, decision, answer)

    def read(self, look: Callable[[S], T]) -> T:
        """See `CoordinatorRuntime.read`."""
        try:
            return look(self.shard.state)
        except KafkaError as refusal:
            raise self._unless_replaced(refusal) from None

    def _unless_replaced(self, refusal: KafkaError) -> KafkaError:
        return refusal if self._in_touch() else retriable(refusal)

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    # -- carrying out ----------------------------------------------------------------------------

    def _carry_out(
        self, key: str, decision: Decision[R, A], answer: DeferredAnswer[A] | None
    ) -> None:
        """Carry out a decision; `answer` is None if no client waits for it."""
        known = decision.answer
        if isinstance(known, DeferredAnswer) and answer is not None:
            known.pass_to(answer)
            answer.list_in(self._unanswered)
            answer.lift_limit()
            answer = None
        if len(decision.effects) > AT_ONCE:
            self._perform_many(decision.effects)
        else:
            for effect in decision.effects:
                self._perform(effect)
        if decision.steps is not None and next(decision.steps, _DONE) is not _DONE:
            self._append_in_steps(key, decision, answer)
            return
        if decision.records:
            self._append(key, decision, answer)
            return
        self._end(key, decision, answer)

    def _end(self, key: str, decision: Decision[R, A], answer: DeferredAnswer[A] | None) -> None:
        """Finish a decision that writes nothing."""
        known = decision.answer
        if answer is not None and not isinstance(known, DeferredAnswer):
            answer.give(known)
        if decision.then is not None:
            self._carry_out(key, decision.then(None, self._now()), None)

    def _perform_many(self, effects: "Sequence[StartTimer[R] | CancelTimer | Call]") -> None:
        """Set timers, and then give the answers of a large group in steps: to encode thousands of
        them in one iteration of the event loop would hold it."""
        calls = []
        for effect in effects:
            if isinstance(effect, Call):
                calls.append(effect)
            else:
                self._perform(effect)
        self._slices.run(self._guarded(self._call(calls)))

    def _call(self, calls: Sequence[Call]) -> Steps[None]:
        for each in calls:
            each.function()
            yield None

    def _perform(self, effect: StartTimer[R] | CancelTimer | Call) -> None:
        if isinstance(effect, Call):
            effect.function()
            return
        self._cancel(effect.timer)
        if isinstance(effect, StartTimer):
            fire = partial(self._fire, effect.timer, effect.key, effect.decide)
            self._timers[effect.timer] = self._loop.call_later(effect.delay_ms / 1000, fire)

    def _cancel(self, timer: TimerKey) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _fire(
        self, timer: TimerKey, key: str, decide: Callable[[Instant], Decision[R, None]]
    ) -> None:
        del self._timers[timer]
        queue = self._queues.get(key)
        try:
            if queue is None or queue.admits(Mode.EXCLUSIVE):
                self._decide_unasked(key, decide)
            else:
                later = partial(self._decide_unasked, key, decide)
                queue.waiting.append(_Waiting(Mode.EXCLUSIVE, later))
        except Exception as error:
            self._failed(error)

    def _decide_unasked(self, key: str, decide: Callable[[Instant], Decision[R, None]]) -> None:
        """Make the decision of a timer. No client waits: `then` deals with a write that failed."""
        try:
            decision = decide(self._now())
        except KafkaError:
            return
        self._carry_out(key, decision, None)

    # -- writing ---------------------------------------------------------------------------------

    def _append(self, key: str, decision: Decision[R, A], answer: DeferredAnswer[A] | None) -> None:
        if len(decision.records) > AT_ONCE:
            self._append_in_steps(key, decision, answer)
            return
        try:
            write = _Write(key, decision, answer, list(map(self.shard.encode, decision.records)))
        except ProtocolError as error:
            self._refuse(_Write(key, decision, answer, []), error)
            return
        if decision.producer is None and not self.log.commits_at_once:
            self._gather(write)
            return
        self._append_gathered()
        try:
            end = self._append_writes([write])
        except KafkaError as error:
            self._refuse(write, error)
            return
        self._begin(key)
        self.log.when_committed(end, partial(self._committed, [write]))
        self._keep_unless_given(answer)

    def _append_in_steps(
        self, key: str, decision: Decision[R, A], answer: DeferredAnswer[A] | None
    ) -> None:
        """Make the records of a long write in steps, and append them."""
        queue = self._begin(key)
        queue.preparing = True
        self._keep_unless_given(answer)
        self._slices.run(self._guarded(self._prepare(key, decision, answer, queue)))

    def _guarded(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        except Exception as fault:
            self._failed(fault)

    def _prepare(
        self,
        key: str,
        decision: Decision[R, A],
        answer: DeferredAnswer[A] | None,
        queue: _WriteQueue,
    ) -> Steps[None]:
        if decision.steps is not None:
            yield from decision.steps
        write = _Write(key, decision, answer, [])
        refusal: KafkaError | ProtocolError | None = None
        batch = BatchBuilder(self._clock.now_ms())
        try:
            for record in decision.records:
                batch.add(*self.shard.encode(record))
                yield None
        except ProtocolError as error:
            refusal = error
        if self._closed:
            return
        queue.preparing = False
        if refusal is None and batch.count:
            self._append_gathered()
            try:
                end = self._append_batch(decision, batch)
            except KafkaError as error:
                refusal = error
            else:
                self.log.when_committed(end, partial(self._committed, [write]))
                self._drain(key, queue)
                return
        queue.uncommitted -= 1
        if refusal is None:
            self._end(key, decision, answer)
        else:
            self._refuse(write, refusal)
        self._drain(key, queue)

    def _gather(self, write: "_Write[R, A]") -> None:
        """Append the records at the end of this iteration of the event loop.

        The records of all decisions of the iteration are one batch: one append here and on every
        follower, in place of one for each.
        """
        self._begin(write.key)
        self._keep_unless_given(write.answer)
        if not self._gathered:
            self._loop.call_later(0, self._append_gathered)
        self._gathered.append(write)
        self._gathered_bytes += write.size
        if self._gathered_bytes >= GATHERED_BYTES:
            self._append_gathered()

    def _append_gathered(self) -> None:
        writes, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not writes or self._closed:
            return
        try:
            self._append_together(writes)
        except Exception as fault:
            self._failed(fault)

    def _append_together(self, writes: "list[_Write[R, Any]]") -> None:
        try:
            end = self._append_writes(writes)
        except KafkaError as error:
            if len(writes) > 1:
                # One alone may be accepted: together they may be too large.
                for write in writes:
                    self._append_together([write])
                return
            (write,) = writes
            queue = self._queues[write.key]
            queue.uncommitted -= 1
            self._refuse(write, error)
            self._drain(write.key, queue)
            return
        self.log.when_committed(end, partial(self._committed, writes))

    def _append_writes(self, writes: "Sequence[_Write[R, Any]]") -> int:
        """Append the records of one decision, or of several without a producer."""
        decision, encoded, now_ms = writes[0].decision, writes[0].encoded, self._clock.now_ms()
        if len(writes) == len(encoded) == 1 and decision.producer is None and not self._compression:
            return self.postponed.append(encoded[0], now_ms)
        batch = BatchBuilder(now_ms)
        for write in writes:
            for key, value in write.encoded:
                batch.add(key, value)
        return self._append_batch(decision, batch)

    def _append_batch(self, decision: Decision[R, Any], batch: BatchBuilder) -> int:
        """Append the records of a decision, or of several without a producer."""
        self.postponed.write()
        now_ms, producer = batch.timestamp, decision.producer
        if producer is None:
            return self.log.append(batch.build(compression=self._compression), now_ms)
        data = batch.build(
            compression=self._compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        return self.log.append(data, now_ms, producer.guard)

    def _begin(self, key: str) -> _WriteQueue:
        """Count a write as uncommitted."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _WriteQueue()
        queue.uncommitted += 1
        return queue

    def _refuse(self, write: "_Write[R, Any]", error: KafkaError | ProtocolError) -> None:
        """Answer a write of which nothing was appended."""
        refused = coordinator_error(error)
        if write.answer is not None:
            write.answer.give(refused)
        if write.decision.then is not None:
            self._carry_out(write.key, write.decision.then(refused, self._now()), None)

    def _keep_unless_given(self, answer: DeferredAnswer[A] | None) -> None:
        if answer is not None and not answer.given:
            self._keep(answer)

    def _keep(self, answer: DeferredAnswer[A]) -> None:
        """Wait for an answer until the write timeout, or until leadership is lost."""
        if self._closed:
            # A replay has failed meanwhile, and the partition is not served any more.
            answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        answer.list_in(self._unanswered)
        answer.limit(
            lambda: self._loop.call_later(self._write_timeout_ms / 1000, partial(_give_up, answer))
        )

    def _committed(self, writes: "Sequence[_Write[R, Any]]", error: KafkaError | None) -> None:
        """Replay records that are committed. With an error, this leader will not commit them."""
        self._in_order(self._replay_all(writes, error))

    def _in_order(self, steps: Steps[None]) -> None:
        """Replay in the order of the log: at once, but a long replay and those after it in steps.

        A replay that yields is long.
        """
        if self._replays is not None:
            self._replays.append(steps)
        elif next(steps, _DONE) is not _DONE:
            self._replays = deque([steps])
            self._slices.run(self._replay_in_steps(self._replays))

    def _replay_in_steps(self, replays: deque[Steps[None]]) -> Steps[None]:
        while replays:
            yield from replays.popleft()
            yield None
        self._replays = None

    def _replay_all(
        self, writes: "Sequence[_Write[R, Any]]", error: KafkaError | None
    ) -> Steps[None]:
        for write in writes:
            if self._closed:
                return
            if error is None:
                try:
                    yield from self._replay(write)
                except Exception as fault:
                    self._failed(fault)
            elif write.answer is not None:
                # The next leader knows whether they count; this shard decides nothing more.
                write.answer.give(coordinator_error(error))

    def _replay(self, write: "_Write[R, Any]") -> Steps[None]:
        key, decision, answer, _ = write
        producer = decision.producer
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for number, record in enumerate(decision.records):
            if number and not number % AT_ONCE:
                yield None
            self.shard.replay(record, producer_id)
        if self._closed:
            return
        queue = self._queues[key]
        queue.uncommitted -= 1
        if answer is not None and not isinstance(decision.answer, DeferredAnswer):
            answer.give(decision.answer)
        if decision.then is not None:
            self._carry_out(key, decision.then(None, self._now()), None)
        self._drain(key, queue)

    def _drain(self, key: str, queue: _WriteQueue) -> None:
        while queue.waiting and self._queues.get(key) is queue:
            mode, decide = queue.waiting[0]
            if queue.blocks(mode):
                return
            queue.waiting.popleft()
            decide()
        if not queue.uncommitted and self._queues.get(key) is queue:
            del self._queues[key]

    # -- markers ---------------------------------------------------------------------------------

    def write_marker(self, marker: TxnMarker) -> Soon[None]:
        """See `CoordinatorRuntime.write_marker`."""
        self._append_gathered()
        now_ms = self._clock.now_ms()
        try:
            self.postponed.write()
            end = self.log.append(
                marker.batch(now_ms), now_ms, transaction_version=marker.transaction_version
            )
        except KafkaError as error:
            raise coordinator_error(error) from None
        # A transaction has records of several keys: markers follow the order of the log alone.
        answer: DeferredAnswer[None] = DeferredAnswer()
        self.log.when_committed(end, partial(self._marker_committed, marker, answer))
        if not answer.given:
            self._keep(answer)
        return answer.outcome()

    def _marker_committed(
        self, marker: TxnMarker, answer: DeferredAnswer[None], error: KafkaError | None
    ) -> None:
        self._in_order(self._replay_marker(marker, answer, error))

    def _replay_marker(
        self, marker: TxnMarker, answer: DeferredAnswer[None], error: KafkaError | None
    ) -> Steps[None]:
        if self._closed:
            return
        if error is not None:
            answer.give(coordinator_error(error))
            return
        try:
            yield from self.shard.replay_marker(
                marker.producer_id, marker.producer_epoch, marker.committed
            )
        except Exception as fault:
            self._failed(fault)
            return
        answer.give(None)


def _give_up(answer: Unanswered) -> None:
    answer.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write is not committed yet"))
