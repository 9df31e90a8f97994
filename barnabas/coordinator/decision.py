"""The decisions of a state machine: records to write, an answer, effects.

A state machine returns a `Decision`; it waits for nothing and changes nothing outside itself.
`HostedShard` carries the decision out: it appends the records, waits until they are committed,
replays them into the state machine, and then gives the answer to the client.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.steps import Steps

R = TypeVar("R")
"""A record of the state machine."""
A = TypeVar("A")
"""The answer to one request."""
TimerKey = tuple[str, ...]
AT_ONCE: Final = 64
"""The number of records in a step: less than a millisecond."""


class Instant(NamedTuple):
    """The time of a decision. Wall time goes into records, monotonic time into deadlines."""

    wall_ms: int
    monotonic_ms: int


class IllegalTransition(Exception):
    """A bug, or a log that no coordinator can have written: the table of a state machine has no
    such transition."""


class TransactionWriter(NamedTuple):
    """The producer in whose open transaction records are written (KIP-98)."""

    producer_id: int
    producer_epoch: int
    guard: object | None = None
    """The log's guard from `begin_verification` (KIP-890); None if the append needs no guard."""


class Cancellable(Protocol):
    """A timer."""

    def cancel(self) -> None: ...


class Unanswered(Protocol):
    """A request whose answer is still to come."""

    def fail(self, error: KafkaError) -> None: ...


class _Pending(Enum):
    PENDING = "no answer yet"


class DeferredAnswer(Generic[A]):
    """An answer that is given later and only once: later calls of `give` have no effect."""

    __slots__ = ("_answer", "_future", "_next", "_timer", "_unanswered")

    def __init__(self) -> None:
        self._answer: A | KafkaError | _Pending = _Pending.PENDING
        self._future: asyncio.Future[A] | None = None
        self._next: DeferredAnswer[A] | None = None
        self._timer: Cancellable | None = None
        self._unanswered: dict[Unanswered, None] | None = None

    @property
    def given(self) -> bool:
        return self._answer is not _Pending.PENDING

    def give(self, answer: A | KafkaError) -> None:
        """Answer the request, with an error if `answer` is a KafkaError."""
        if self._answer is not _Pending.PENDING:
            return
        self._answer = answer
        if self._timer is not None:
            self.lift_limit()
        if self._unanswered is not None:
            self._unanswered.pop(self, None)
        future = self._future
        if future is not None and not future.done():
            if isinstance(answer, KafkaError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if self._next is not None:
            self._next.give(answer)

    def fail(self, error: KafkaError) -> None:
        """Answer the request with an error."""
        self.give(error)

    def outcome(self) -> Soon[A]:
        """Return the answer, or a future of it if it is not given yet; raise the error if it is
        one."""
        answer = self._answer
        if answer is _Pending.PENDING:
            self._future = asyncio.get_running_loop().create_future()
            return self._future
        if isinstance(answer, KafkaError):
            # The one that is kept would be in a cycle with the frames of its traceback.
            raise KafkaError(answer.code, answer.message)
        return answer

    # -- for `HostedShard` -----------------------------------------------------------------------

    def pass_to(self, other: "DeferredAnswer[A]") -> None:
        """Give the answer to `other` as well."""
        self._next = other

    def list_in(self, unanswered: dict[Unanswered, None]) -> None:
        """Add this answer to a collection until it is given; do nothing if it is given already."""
        if self._answer is _Pending.PENDING:
            unanswered[self] = None
            self._unanswered = unanswered

    def limit(self, start: Callable[[], Cancellable]) -> None:
        """Start a timer that gives an answer if no other comes, unless a timer runs already."""
        if self._timer is None:
            self._timer = start()

    def lift_limit(self) -> None:
        """Wait for the answer without a time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class StartTimer(NamedTuple, Generic[R]):
    """The effect: decide again after `delay_ms` of monotonic time, as an exclusive write of `key`.

    It replaces the timer with the same name.
    """

    timer: TimerKey
    delay_ms: int
    key: str
    decide: "Callable[[Instant], Decision[R, None]]"


class CancelTimer(NamedTuple):
    """The effect: cancel a timer, if there is one with this name."""

    timer: TimerKey


class Call(NamedTuple):
    """The effect: call a function outside of the state machine, as the `give` of an answer."""

    function: Callable[[], None]


class Decision(NamedTuple, Generic[R, A]):
    """A decision. The answer is given at once, or once the records are committed and replayed.

    With a DeferredAnswer as its answer, another decision gives the answer. Effects are carried out
    at once, because state that is not logged changes at once. With a producer, the records are one
    batch of its transaction.

    `then` makes the next decision: with None when the records are committed and replayed, with the
    client's error when the log refused them and nothing was written.

    `steps` adds the records, and may still change the answer. Until it is done, no other write of
    the key is decided.

    With `postpones`, the record may be replayed before it is written: a coordinator whose log lacks
    it makes the same decision again, and no answer depends on more than this decision.

    If it is `whole`, its records are replayed in one step, however many they are: between two of
    them a request would find what no decision made.
    """

    answer: A | KafkaError | DeferredAnswer[A]
    records: Sequence[R] = ()
    effects: "Sequence[StartTimer[R] | CancelTimer | Call]" = ()
    then: "Callable[[KafkaError | None, Instant], Decision[R, None]] | None" = None
    producer: TransactionWriter | None = None
    steps: Steps[None] | None = None
    postpones: bool = False
    whole: bool = False


NOTHING: Final[Decision[Any, None]] = Decision(None)
"""The decision to do nothing."""
