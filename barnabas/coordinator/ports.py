"""The interfaces of a coordinator: to the broker, and between its runtime and its state machine."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from barnabas.coordinator.decision import Decision, Instant
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import HeaderFields
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps

S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, as records and metadata have them."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations and timeouts."""
        ...


class TimerHandle(Protocol):
    """A timer that runs."""

    def cancel(self) -> None:
        """Cancel the timer; no effect after it has fired."""
        ...


class Timers(Protocol):
    """The timers of the event loop."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, after `seconds`."""
        ...

    async def pause(self) -> None:
        """Let the event loop run every other task that is ready."""
        ...


class Slices(Protocol):
    """The slicer of the event loop, which runs long work in slices."""

    def run(self, steps: Steps[T], /) -> "asyncio.Future[T]":
        """Run work; short work is done on return. Returns a future of its result."""
        ...


class PartitionLog(Protocol):
    """The log of one partition during one leader epoch, in which this broker leads it."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether records are committed as soon as they are appended: nothing is gained if records
        wait for others to be appended with them."""
        ...

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches, the first of them with `offset`; b"" at the end of the log.

        Raises KafkaError.
        """
        ...

    def begin_verification(self, claim: Claim) -> object | None:
        """Return the guard that a producer's first batch of a transaction needs (KIP-890).

        None if its transaction is open in this partition already. Raises KafkaError:
        INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING if the open transaction belongs to
        another transactional id, and the error of a log that this broker no longer leads.
        """
        ...

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        header: HeaderFields | None = None,
        guard: object | None = None,
        marker: TxnMarker | None = None,
    ) -> int:
        """Append one batch, which gets its offsets in place; return the offset at which it is
        committed.

        `header` is the batch's, if the caller has made it; `guard` comes from
        `begin_verification`; `marker` is the marker that the batch is. Raises
        KafkaError if the log refuses the batch or this broker no longer leads it; nothing is
        written then.
        """
        ...

    def when_committed(self, offset: int, waiter: Callable[[KafkaError | None], None]) -> None:
        """Call `waiter` once the high watermark reaches `offset`, at once if it has; with an error
        if this broker loses leadership before."""
        ...


class Shard(Protocol[S_co, R]):
    """A state machine over one partition of a coordinator's topic. No method waits."""

    @property
    def state(self) -> S_co:
        """The state on which decisions are made."""
        ...

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Return key and value as the log holds them. Raises ProtocolError."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """Return the record of a key and value; None for kinds that only a newer broker knows."""
        ...

    def replay(self, record: R, producer_id: int) -> None:
        """Apply a committed record. Logged state changes here and in `replay_marker` only.

        With a producer id other than -1 the record is part of that producer's open transaction.
        """
        ...

    def replay_marker(
        self, producer_id: int, producer_epoch: int, committed: bool
    ) -> Iterable[None]:
        """Apply the end of a producer's transaction in this partition, in steps."""
        ...

    def loaded(self, now: Instant) -> Decision[R, None]:
        """Return the first decision, once the whole log is replayed and committed."""
        ...
