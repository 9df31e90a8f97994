"""The requests that the sink's protocol makes, as an interface: `SinkPort`. No I/O.

`cluster_port.py` answers them from a cluster; tests answer them from a model, one by one.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.operations.sinks.decisions import Identity, Place
from barnabas.protocol.errors import KafkaError

__all__ = [
    "End",
    "Fate",
    "FirstRecord",
    "Identity",
    "OpenTransaction",
    "Pinned",
    "Place",
    "SinkPort",
    "StoredDecision",
]


class OpenTransaction(NamedTuple):
    """An open transaction at its coordinator.

    Its records bear the ongoing identity; the client's identity may end it. Both are equal unless
    the transaction was pinned. `started_ms` is in ms since the epoch, by the coordinator's clock.
    """

    transactional_id: str
    ongoing: Identity
    client: Identity
    started_ms: int


class Pinned(NamedTuple):
    """A response to InitProducerId with KeepPreparedTxn; `ongoing` is None if nothing is open."""

    client: Identity
    ongoing: Identity | None


class End(NamedTuple):
    """A request to commit or abort the open transaction of a transactional id."""

    transactional_id: str
    producer: Identity
    committed: bool


class FirstRecord(NamedTuple):
    """The place of a transaction's first record, and the identity that it was written with."""

    place: Place
    producer: Identity


class Fate(Enum):
    """The state of a transaction's first record, as its partition's committed log has it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The log is not decided at the offset, or is not replicated up to it."""
    GONE = "gone"
    """Deleted, alone or with its topic, or compacted: the log no longer tells."""


class StoredDecision(NamedTuple):
    """A committed record of the decisions topic."""

    offset: int
    value: bytes


class SinkPort(Protocol):
    """The requests of one driver of one sink, whose id is known to the port.

    A method repeats its request until the response is final. Then it raises KafkaError, or returns
    the error in the place of the result where a call has many. A retriable code, such as
    REQUEST_TIMED_OUT, means that no final response came in time: the request may have taken effect.
    """

    async def list_open(self) -> list[OpenTransaction]:
        """Return all open transactions whose ids begin with the sink's id and a dot."""

    async def describe(self, transactional_ids: Sequence[str]) -> list[OpenTransaction | None]:
        """Return the open transaction of each id, None for one without."""

    async def fence(self) -> None:
        """Take the driver's id: fence its earlier users and abort their open transaction.

        Returns once every earlier transaction of the driver's id has its marker.
        """

    async def pin(self, transactional_ids: Sequence[str]) -> list[Pinned | KafkaError]:
        """Keep the open transaction of each id, without its timeout, under a new identity."""

    async def end(self, ends: Sequence[End]) -> list[KafkaError | None]:
        """Commit or abort transactions; the response is there when the coordinator has decided."""

    async def write_decision(self, value: bytes) -> int:
        """Write a record in a transaction of the driver's id; return its offset.

        The write is acknowledged by all in-sync replicas.
        """

    async def end_decision(self, *, committed: bool) -> None:
        """End the transaction of the driver's id."""

    async def decision_fate(self, offset: int) -> Fate:
        """Return the fate of the record that `write_decision` wrote at an offset."""

    async def last_decision(self, before: int | None) -> StoredDecision | None:
        """Return the newest committed record whose offset is below `before`.

        Waits until the committed log of the replica reaches the record at `before`, which must be
        the one that this port wrote. With None, the end of the leader's log: for reports only.
        """

    async def fates(self, records: Sequence[FirstRecord]) -> list[Fate]:
        """Return the fate of each transaction, from the committed log."""

    def now_ms(self) -> int:
        """Return the wall clock's time in ms since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
