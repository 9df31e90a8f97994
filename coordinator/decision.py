"""The only thing a state machine may say: what to write down, what to answer, what to do.

A machine is asked with a `Turn` and answers with a `Decision`; it waits for nothing and touches
nothing outside itself. Whoever carries the decision (`runtime.py`) appends the records, waits until
they are committed, replays them into the machine and only then lets the response go.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.protocol.errors import KafkaError

Ticket = int
"""Names one asker whose answer may come later."""
TimerKey = tuple[str, ...]
R = TypeVar("R")


class Parked(Enum):
    """The type of `PARKED`."""

    PARKED = "parked"


PARKED = Parked.PARKED
"""In place of a response: the asker will be given an `Answer` by some later decision."""


class Turn(NamedTuple):
    """The occasion of a decision. Wall time goes into records, monotonic time into deadlines."""

    now_ms: int
    monotonic_ms: int
    ticket: Ticket


class Transaction(NamedTuple):
    """The producer of whose transaction records are a part (KIP-98)."""

    producer_id: int
    producer_epoch: int
    guard: object | None = None
    """What the log gave out when verification began (KIP-890); None where none was needed."""


class Decision(NamedTuple, Generic[R]):
    """Without records the response goes at once, otherwise when they are committed and replayed.

    With a transaction the records are one batch of it, and replay is told whose it is.

    Effects are carried out at once: what is not logged changes at once. `then` is asked for the
    next decision when the records are committed and replayed (with None), or when their append was
    refused (with what a client is told) and nothing was written.
    """

    records: Sequence[R] = ()
    response: Any = None
    effects: Sequence["Effect"] = ()
    then: "Callable[[KafkaError | None, Turn], Decision[R]] | None" = None
    transaction: Transaction | None = None


Decide = Callable[[Turn], Decision[Any]]


class Answer(NamedTuple):
    """Answers a parked asker with a response, or with the error in its place."""

    ticket: Ticket
    response: Any


class StartTimer(NamedTuple):
    """Asks `decide` in `delay_ms` of monotonic time, in its lane; replaces the key's old timer."""

    key: TimerKey
    delay_ms: int
    lane: str
    decide: Decide


class CancelTimer(NamedTuple):
    """Forgets a timer, if there is one."""

    key: TimerKey


class Send(NamedTuple):
    """Hands a message to whoever carries messages to other brokers."""

    message: Any


Effect = Answer | StartTimer | CancelTimer | Send
