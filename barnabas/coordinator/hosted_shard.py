"""One partition of a coordinator's topic that this broker leads: its shard, writes and timers.

Writes of one key (a group, a transactional id) that depend on each other wait for each other, so
that each decision is made on committed state. If a write takes too long, its *answer* times out;
the decision stands, and the next exclusive write of the key waits until the records are committed
or leadership is lost.

Every record, marker and batch goes one way: decide, append, committed, replay, answer. A log that
commits at once calls back in the same call, and the answer is there when `write` returns.

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
    NOTHING,
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
from barnabas.coordinator.postponed import Encoded, PostponedRecords
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.records.batch import NO_PRODUCER_ID
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import BatchBuilder
from barnabas.protocol.steps import Steps

_DONE: Final = object()
_new = tuple.__new__
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


_GIVEN_OTHERWISE: Final = (DeferredAnswer, KafkaError)
"""Answers of a decision that are not returned as they are."""


class _Waiting(NamedTuple):
    """A decision that is not made yet."""

    mode: Mode
    decide: Callable[[], None]


class _WriteQueue:
    """The writes of one key that are not committed yet, and the decisions that wait for them."""

    __slots__ = ("draining", "preparing", "uncommitted", "waiting")

    def __init__(self) -> None:
        self.uncommitted = 0
        self.preparing = False
        """Whether the records of a long write are being made, for which every decision waits."""
        self.draining = False
        self.waiting: deque[_Waiting] = deque()

    def admits(self, mode: Mode) -> bool:
        return not self.waiting and not self.blocks(mode)

    def blocks(self, mode: Mode) -> bool:
        return self.preparing or (mode is Mode.EXCLUSIVE and self.uncommitted > 0)


class _Write:
    """A decision on its way to the log and back."""

    __slots__ = (
        "answer",
        "at_once",
        "batch",
        "decision",
        "encoded",
        "error",
        "key",
        "landed",
        "marker",
        "now",
        "postponed",
        "queue",
    )

    def __init__(self, key: str, decision: Decision[Any, Any], now: Instant, at_once: bool) -> None:
        self.key = key
        self.decision = decision
        self.now = now
        """The time of the decision."""
        self.at_once = at_once
        """Whether the log commits at once."""
        self.encoded: Sequence[Encoded] = ()
        """Keys and values of the records."""
        self.batch: BatchBuilder | None = None
        """The records of a long write, in place of `encoded`."""
        self.marker: TxnMarker | None = None
        """The marker, in place of records."""
        self.postponed = False
        self.answer: DeferredAnswer[Any] | None = None
        """The answer of a client that waits."""
        self.queue: _WriteQueue | None = None
        """The queue that counts the write as uncommitted; None if it lands in the same call."""
        self.landed = False
        """Whether its records are replayed, or will not be because of `error`."""
        self.error: KafkaError | None = None

    @property
    def size(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self.encoded)

    @property
    def is_long(self) -> bool:
        """Whether it is replayed in steps."""
        decision = self.decision
        return self.marker is not None or (len(decision.records) > AT_ONCE and not decision.whole)

    def settle(self, answer: Any) -> None:
        """Answer a client that waits, unless another decision gives the answer."""
        if self.answer is not None and not isinstance(self.decision.answer, DeferredAnswer):
            self.answer.give(answer)


class HostedShard(Generic[S, R]):
    """A shard with its volatile state: writes in flight, unanswered requests and
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
        self._failed = failed
        self.postponed = PostponedRecords(log, clock, timers, failed)
        self._closed = False
        self._unanswered: dict[Unanswered, None] = {}
        self._queues: dict[str, _WriteQueue] = {}
        self._gathered: list[_Write] = []
        """The writes of this iteration of the event loop, in the order of their decisions."""
        self._gathered_bytes = 0
        self._replays: deque[Steps[None]] | None = None
        """The replays after a long one that has begun, in the order of the log."""
        self._timers: dict[TimerKey, TimerHandle] = {}

    def serve(self) -> None:
        """Begin to serve: the log has been replayed to its end, and all of it is committed."""
        self.serving = True
        now = self._now()
        decision = self.shard.loaded(now)
        self._perform_all(decision.effects, in_steps=True)
        self._go_on("", decision._replace(effects=()), now)

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

    @property
    def lands_at_once(self) -> bool:
        """Whether a write of few records lands in the same call: its log commits at once, and
        nothing that it would have to wait for is on its way."""
        return self.log.commits_at_once and not self._queues and self._replays is None

    def is_writing(self, key: str) -> bool:
        """See `CoordinatorRuntime.is_writing`."""
        return key in self._queues

    def write(
        self, key: str, decide: Callable[[S, Instant], Decision[R, A]], mode: Mode
    ) -> Soon[A]:
        """See `CoordinatorRuntime.write`."""
        queue = self._queues.get(key)
        if queue is not None and mode is not Mode.IMMEDIATE and not queue.admits(mode):
            answer: DeferredAnswer[A] = DeferredAnswer()
            queue.waiting.append(_Waiting(mode, partial(self._decide_later, key, decide, answer)))
            return self._keep(answer)
        now = self._now()
        try:
            decision = decide(self.shard.state, now)
        except KafkaError as refusal:
            raise self._unless_replaced(refusal) from None
        known, records, effects, then, _, steps, _, _ = decision
        if not (records or effects or then or steps) and not isinstance(known, _GIVEN_OTHERWISE):
            return known
        write = _Write(key, decision, now, self.log.commits_at_once)
        self._carry_out(write)
        if write.landed and write.error is None and not isinstance(known, _GIVEN_OTHERWISE):
            return known
        return self._answer_to(write)

    def _answer_to(self, write: _Write) -> Soon[Any]:
        """Return the answer to a write, or a future of it."""
        known = write.decision.answer
        if isinstance(known, DeferredAnswer):
            if self._closed:
                known.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
            known.list_in(self._unanswered)
            return known.outcome()
        if not write.landed:
            write.answer = DeferredAnswer()
            return self._keep(write.answer)
        if write.error is not None:
            raise write.error
        if isinstance(known, KafkaError):
            # The decision keeps its own, which would be in a cycle with these frames.
            raise KafkaError(known.code, known.message)
        return known

    def _decide_later(
        self,
        key: str,
        decide: Callable[[S, Instant], Decision[R, A]],
        answer: DeferredAnswer[A],
    ) -> None:
        now = self._now()
        try:
            decision = decide(self.shard.state, now)
        except KafkaError as refusal:
            # Its frames have the answer, in a cycle.
            answer.give(self._unless_replaced(refusal).with_traceback(None))
            return
        if isinstance(decision.answer, DeferredAnswer):
            decision.answer.pass_to(answer)
            answer.lift_limit()
        write = _Write(key, decision, now, self.log.commits_at_once)
        write.answer = answer
        self._carry_out(write)

    def read(self, look: Callable[[S], T]) -> T:
        """See `CoordinatorRuntime.read`."""
        try:
            return look(self.shard.state)
        except KafkaError as refusal:
            raise self._unless_replaced(refusal) from None

    def _unless_replaced(self, refusal: KafkaError) -> KafkaError:
        return refusal if self._in_touch() else retriable(refusal)

    def _now(self) -> Instant:
        clock = self._clock
        return _new(Instant, (clock.now_ms(), int(clock.monotonic() * 1000)))

    # -- carrying out ----------------------------------------------------------------------------

    def _carry_out(self, write: _Write) -> None:
        """Perform the effects of a decision, and write its records: now, with others, or later."""
        decision = write.decision
        _, records, effects, _, producer, steps, postpones, _ = decision
        if effects:
            self._perform_all(effects)
        if (steps is not None and next(steps, _DONE) is not _DONE) or len(records) > AT_ONCE:
            # In steps: the records of a long write are many, or take long to find.
            self._count(write).preparing = True
            self._slices.run(self._guarded(self._prepare(write)))
            return
        if not records:
            self._land(write)
            return
        try:
            write.encoded = list(map(self.shard.encode, records))
        except ProtocolError as error:
            self._refuse(write, error)
            return
        if not write.at_once and producer is None:
            self._gather(write)
            return
        if self._gathered:
            self._append_gathered()
        if (
            postpones
            # Nothing before it is on its way, and another one probably follows in time.
            and not self._queues
            and self._replays is None
            and self.postponed.takes(write.now[1])
        ):
            write.postponed = True
            self._committed([write], None)
        else:
            self._append([write], write.now.wall_ms)

    def _go_on(self, key: str, decision: Decision[R, None], now: Instant) -> None:
        """Carry out a decision for which no client waits."""
        if decision.records or decision.then or decision.steps:
            self._carry_out(_Write(key, decision, now, self.log.commits_at_once))
        elif decision.effects:
            self._perform_all(decision.effects)

    def _perform_all(
        self, effects: "Sequence[StartTimer[R] | CancelTimer | Call]", *, in_steps: bool = False
    ) -> None:
        """Set timers and make calls; many calls in steps: to encode the answers of a large group in
        one iteration of the event loop would hold it."""
        calls = []
        for effect in effects:
            if isinstance(effect, Call) and (in_steps or len(effects) > AT_ONCE):
                calls.append(effect)
            else:
                self._perform(effect)
        if calls:
            self._slices.run(self._guarded(self._call(calls)))

    def _call(self, calls: Sequence[Call]) -> Steps[None]:
        for each in calls:
            if self._closed:
                return
            each.function()
            yield None

    def _perform(self, effect: StartTimer[R] | CancelTimer | Call) -> None:
        if isinstance(effect, Call):
            effect.function()
            return
        timer = effect.timer
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()
        if isinstance(effect, StartTimer):
            fire = partial(self._fire, timer, effect.key, effect.decide)
            self._timers[timer] = self._loop.call_later(effect.delay_ms / 1000, fire)

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
        now = self._now()
        try:
            decision = decide(now)
        except KafkaError:
            return
        self._go_on(key, decision, now)

    # -- writing ---------------------------------------------------------------------------------

    def put(self, record: R, encoded: Encoded, now: Instant, postpones: bool = False) -> bool:
        """Append a record that is committed at once, and replay it; return whether the shard is
        still served.

        Returns False, too, if the log refuses the record, and while something is on its way that a
        decision would have to wait for: nothing has changed then.
        """
        if not self.lands_at_once or self._compression:
            return False
        postponed = self.postponed
        waits = postpones and postponed.takes(now[1])
        if not waits:
            try:
                postponed.append((encoded,), now[0])
            except KafkaError:
                return False
        try:
            self.shard.replay(record, NO_PRODUCER_ID)
            if waits:
                postponed.add(encoded, now[1])
        except Exception as fault:
            self._failed(fault)
        return not self._closed

    def _guarded(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        except Exception as fault:
            self._failed(fault)

    def _prepare(self, write: _Write) -> Steps[None]:
        decision, queue = write.decision, write.queue
        assert queue is not None
        if decision.steps is not None:
            yield from decision.steps
        refusal: ProtocolError | None = None
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
        if refusal is not None:
            self._refuse(write, refusal)
        elif batch.count:
            write.batch = batch
            self._append_gathered()
            self._append([write], batch.timestamp)
            self._drain(write.key, queue)
        else:
            self._land(write)

    def _gather(self, write: _Write) -> None:
        """Append the records at the end of this iteration of the event loop.

        The records of all decisions of the iteration are one batch: one append here and on every
        follower, in place of one for each.
        """
        self._count(write)
        if not self._gathered:
            self._loop.call_later(0, self._append_gathered)
        self._gathered.append(write)
        self._gathered_bytes += write.size
        if self._gathered_bytes >= GATHERED_BYTES:
            self._append_gathered()

    def _append_gathered(self) -> None:
        if not self._gathered or self._closed:
            return
        writes, self._gathered, self._gathered_bytes = self._gathered, [], 0
        try:
            self._append(writes, self._clock.now_ms())
        except Exception as fault:
            self._failed(fault)

    def _append(self, writes: list[_Write], now_ms: int) -> None:
        """Append one write, or several without a producer: the only place where the log grows,
        besides the postponed records before it."""
        first = writes[0]
        encoded, producer = first.encoded, first.decision.producer
        if len(writes) > 1:
            encoded = [each for write in writes for each in write.encoded]
        try:
            if encoded and producer is None and not self._compression:
                end = self.postponed.append(encoded, now_ms)
            else:
                end = self._append_batch(first, encoded, now_ms)
        except KafkaError as error:
            if len(writes) > 1:
                # One alone may be accepted: together they may be too large.
                for write in writes:
                    self._append([write], now_ms)
            else:
                self._refuse(first, error)
            return
        self.log.when_committed(end, partial(self._committed, writes))
        for write in writes:
            # Markers follow the order of the log alone: a transaction has records of several keys.
            if not write.landed and write.queue is None and write.marker is None:
                self._count(write)

    def _append_batch(self, write: _Write, encoded: Sequence[Encoded], now_ms: int) -> int:
        """Append what is more than plain records."""
        producer, batch, marker = write.decision.producer, write.batch, write.marker
        self.postponed.write()
        if marker is not None:
            data, header = marker.packed(now_ms)
            return self.log.append(data, now_ms, header, marker=marker)
        if batch is None:
            batch = BatchBuilder(now_ms)
            for key, value in encoded:
                batch.add(key, value)
        if producer is None:
            return self.log.append(batch.build(compression=self._compression), now_ms)
        data = batch.build(
            compression=self._compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        return self.log.append(data, now_ms, guard=producer.guard)

    def _count(self, write: _Write) -> _WriteQueue:
        """Count a write as uncommitted."""
        queue = self._queues.get(write.key)
        if queue is None:
            queue = self._queues[write.key] = _WriteQueue()
        queue.uncommitted += 1
        write.queue = queue
        return queue

    def _land(self, write: _Write, error: KafkaError | None = None) -> None:
        """Answer a write that is replayed, or of which nothing was appended because of an error,
        and make the decision that follows."""
        write.landed, write.error = True, error
        decision, queue = write.decision, write.queue
        if queue is None:
            now = write.now
        else:
            queue.uncommitted -= 1
            now = self._now()
        if write.answer is not None:
            write.settle(decision.answer if error is None else error)
        if decision.then is not None:
            following = decision.then(error, now)
            if following is not NOTHING:
                self._go_on(write.key, following, now)
        if queue is not None:
            self._drain(write.key, queue)

    def _refuse(self, write: _Write, error: KafkaError | ProtocolError) -> None:
        self._land(write, coordinator_error(error))

    def _keep(self, answer: DeferredAnswer[A]) -> Soon[A]:
        """Wait for an answer until the write timeout, or until leadership is lost."""
        if self._closed:
            # A replay has failed meanwhile, and the partition is not served any more.
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        answer.list_in(self._unanswered)
        answer.limit(
            lambda: self._loop.call_later(self._write_timeout_ms / 1000, partial(_give_up, answer))
        )
        return answer.outcome()

    def _committed(self, writes: list[_Write], error: KafkaError | None) -> None:
        """Replay committed records in the order of the log; with an error, this leader will not
        commit them.

        A replay that yields is long: it continues in steps, and later replays wait for it.
        """
        if error is None and len(writes) == 1 and self._replays is None and not writes[0].is_long:
            self._replay_short(writes[0])
            return
        steps = self._replay(writes, error)
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

    def _replay(self, writes: list[_Write], error: KafkaError | None) -> Steps[None]:
        for write in writes:
            if self._closed:
                return
            if error is not None:
                # The next leader knows whether they count; this shard decides nothing more.
                write.landed, write.error = True, coordinator_error(error)
                write.settle(write.error)
                continue
            if not write.is_long:
                self._replay_short(write)
                continue
            marker, producer = write.marker, write.decision.producer
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            try:
                if marker is not None:
                    yield from self.shard.replay_marker(
                        marker.producer_id, marker.producer_epoch, marker.committed
                    )
                for number, record in enumerate(write.decision.records):
                    if number and not number % AT_ONCE:
                        yield None
                    self.shard.replay(record, producer_id)
                if not self._closed:
                    self._land(write)
            except Exception as fault:
                self._failed(fault)

    def _replay_short(self, write: _Write) -> None:
        """Replay the records of a write in one step."""
        if self._closed:
            return
        producer, replay = write.decision.producer, self.shard.replay
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        try:
            for record in write.decision.records:
                replay(record, producer_id)
            if write.postponed:
                self.postponed.add(write.encoded[0], write.now.monotonic_ms)
            if not self._closed:
                self._land(write)
        except Exception as fault:
            self._failed(fault)

    def _drain(self, key: str, queue: _WriteQueue) -> None:
        """Make the decisions that wait, until one of them has to wait longer.

        One that is committed at once must not make the next one inside of itself.
        """
        if queue.draining:
            return
        queue.draining = True
        try:
            while queue.waiting and self._queues.get(key) is queue:
                mode, decide = queue.waiting[0]
                if queue.blocks(mode):
                    return
                queue.waiting.popleft()
                decide()
        finally:
            queue.draining = False
        if not queue.uncommitted and self._queues.get(key) is queue:
            del self._queues[key]

    # -- markers ---------------------------------------------------------------------------------

    def write_marker(self, marker: TxnMarker) -> Soon[None]:
        """See `CoordinatorRuntime.write_marker`."""
        now = self._now()
        write = _Write("", NOTHING, now, self.log.commits_at_once)
        write.marker = marker
        self._append_gathered()
        self._append([write], now.wall_ms)
        return self._answer_to(write)


def _give_up(answer: Unanswered) -> None:
    answer.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write is not committed yet"))
