"""What the broker must lend a coordinator, and what the runtime asks of a state machine."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from barnabas.coordinator.decision import Decision, Turn
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.claim import Claim

R = TypeVar("R")


class Clock(Protocol):
    """Wall time for records, monotonic time for waits."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class TimerHandle(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Make sure that it does not fire; harmless after it has."""
        ...


class Timers(Protocol):
    """The event loop, as far as a coordinator needs it."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back once, not before `seconds` have passed."""
        ...

    async def pause(self) -> None:
        """Let everything else that is ready go first."""
        ...


class PartitionLog(Protocol):
    """The log of one partition that this broker leads, during one leader epoch."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset there is."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        ...

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that has `offset` on, empty at the end; raises KafkaError."""
        ...

    def begin_verification(self, claim: Claim) -> object | None:
        """The guard that a producer's first batch of a transaction needs (KIP-890).

        None where its transaction is open here already, and nothing is to be verified. Raises
        KafkaError: INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING where that one is of
        another transactional id, or where the log is not led in this epoch any more.
        """
        ...

    def append(
        self,
        batch: bytes,
        now_ms: int,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Append one batch; returns the offset that must be committed for it to count.

        `guard` is what verification gave to the batch of a transaction, `transaction_version` the
        one by which a marker's epoch is judged (KIP-890). Raises KafkaError where the log refuses
        it or is not led in this epoch any more: nothing has been written then.
        """
        ...

    def when_committed(self, offset: int, waiter: Callable[[KafkaError | None], None]) -> None:
        """Call `waiter` once the high watermark reaches `offset`: at once where it has, with an
        error where leadership is lost first."""
        ...


class Shard(Protocol[R]):
    """A state machine over one partition. Nothing here waits; everything may raise KafkaError."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value as they are written to the log."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The inverse; None for kinds of records that only a newer broker knows."""
        ...

    def replay(self, record: R, producer_id: int) -> None:
        """Apply a committed record: the only place where logged state changes.

        With a producer id (-1 is none) it is part of that producer's open transaction.
        """
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """The transaction of a producer has ended in this partition."""
        ...

    def loaded(self, turn: Turn) -> Decision[Any]:
        """The whole log has been replayed and is committed; serving begins."""
        ...
