"""A partition's log in memory, controlled by a test."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import (
    NO_SEQUENCE,
    iter_headers,
    read_header,
    set_base_offset_and_epoch,
)
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import iter_records


@dataclass
class FakeLog:
    """A partition's log. While `held`, it commits nothing; with a `refusal`, it refuses appends."""

    batches: list[bytes] = field(default_factory=list)
    committed: int = 0
    held: bool = False
    refusal: KafkaError | None = None
    waiters: list[tuple[int, Callable[[KafkaError | None], None]]] = field(default_factory=list)
    start_offset: int = 0
    leader_epoch: int = 0
    commits_at_once: bool = True
    """Whether its coordinator appends each write by itself, also while the log is `held`."""
    guards: list[object | None] = field(default_factory=list)
    """The guard of each batch."""
    transaction_versions: list[int] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    @property
    def open_transactions(self) -> dict[int, int]:
        """The epochs of producers whose transactions are open."""
        found: dict[int, int] = {}
        for header in map(read_header, self.batches):
            if header.is_control:
                found.pop(header.producer_id, None)
            elif header.is_transactional:
                found[header.producer_id] = header.producer_epoch
        return found

    def begin_verification(self, claim: Claim) -> object | None:
        assert claim.base_sequence == NO_SEQUENCE
        if self.refusal is not None:
            raise self.refusal
        open_epoch = self.open_transactions.get(claim.producer_id)
        return None if open_epoch == claim.producer_epoch else object()

    async def read(self, offset: int, max_bytes: int) -> bytes:  # noqa: ARG002
        await asyncio.sleep(0)
        for batch in self.batches:
            if read_header(batch).next_offset > offset:
                return batch
        return b""

    def append(
        self,
        batch: bytes,
        now_ms: int,  # noqa: ARG002
        header: object = None,  # noqa: ARG002
        guard: object | None = None,
        marker: TxnMarker | None = None,
    ) -> int:
        if self.refusal is not None:
            raise self.refusal
        data = bytearray(batch)
        length = read_header(data).batch_length
        set_base_offset_and_epoch(data, 0, self.end_offset, length, 0)
        self.batches.append(bytes(data))
        self.guards.append(guard)
        self.transaction_versions.append(0 if marker is None else marker.transaction_version)
        if not self.held:
            self.commit(self.end_offset)
        return self.end_offset

    def when_committed(self, offset: int, waiter: Callable[[KafkaError | None], None]) -> None:
        if offset <= self.committed:
            waiter(None)
        else:
            self.waiters.append((offset, waiter))

    def release(self) -> None:
        """Commit everything that was appended."""
        self.held = False
        self.commit(self.end_offset)

    def commit(self, offset: int) -> None:
        """Move the high watermark to `offset`. Waiters that are called may append more; they are
        called in the order of their offsets all the same, as partitions do it."""
        self.committed = offset
        while self.waiters and self.waiters[0][0] <= offset:
            self.waiters.pop(0)[1](None)

    @property
    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values, in their order."""
        return [
            (record.key, record.value)
            for each in self.batches
            for position, header in iter_headers(each)
            for record in iter_records(each, position, header)
        ]

    @property
    def record_count(self) -> int:
        return sum(header.record_count for each in self.batches for _, header in iter_headers(each))
