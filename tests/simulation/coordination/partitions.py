"""Partitions whose leaders change: committed records stay, others may be truncated, and a deposed
leader that has not learned of its successor continues."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.replication.partition import Standing
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    iter_headers,
    read_header,
    set_base_offset_and_epoch,
)
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import DuplicateSequence
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import VerificationGuard
from tests.simulation.transactions.broker import DataPartition

if TYPE_CHECKING:
    from tests.simulation.coordination.world import World

Waiter = Callable[[KafkaError | None], None]
NOBODY = -1


def end_of(batches: list[bytes]) -> int:
    return read_header(batches[-1]).next_offset if batches else 0


class Term(NamedTuple):
    """The leader of a partition since an election, and the log at that moment."""

    place: TopicPartition
    leader: int
    epoch: int
    batches: tuple[bytes, ...]


class Replicated:
    """The true state of a partition: its log on the leader of the latest epoch."""

    def __init__(self, world: "World", place: TopicPartition) -> None:
        self.place = place
        self.leader = NOBODY
        self.epoch = 0
        self.batches: list[bytes] = []
        self.committed = 0
        self.slow = False
        """Whether followers are stopped: appended records are committed when the followers
        return."""
        self._world = world

    def elect(self, leader: int) -> Term:
        """Elect a leader that has a part of the uncommitted records."""
        tail = sum(read_header(each).next_offset > self.committed for each in self.batches)
        del self.batches[len(self.batches) - self._world.rng.randint(0, tail) :]
        self.leader = leader
        self.epoch += 1
        return Term(self.place, leader, self.epoch, tuple(self.batches))

    def replicate(self, epoch: int, end: int, told: Callable[[int], None]) -> None:
        """Have followers copy the records before `end`, unless another leader is elected before."""

        def arrived() -> None:
            if epoch != self.epoch:
                return
            if self.slow:
                self._world.later(0.5, arrived)
                return
            if end > self.committed:
                self.committed = end
                self._world.committed(self)
            told(self.committed)

        self._world.later(self._world.latency(), arrived)

    def replayed(self, end: int) -> DataPartition:
        """Return the state of the log's producers up to an offset."""
        view = DataPartition(self.place, lambda _: None)
        for batch in self.batches:
            if read_header(batch).next_offset <= end:
                view.append(batch, origin=Origin.REPLICATION)
        return view


class Replica:
    """A partition that one broker leads in one leader epoch; stands in for `Partition` and
    `Log`."""

    log_start_offset = 0
    standing = Standing(0)

    def __init__(self, truth: Replicated, term: Term) -> None:
        self._truth = truth
        self.topic, self.index = term.place
        self.leader_epoch = term.epoch
        self.is_leader = True
        self.refusal: ErrorCode | None = None
        self._batches = list(term.batches)
        self._high_watermark = 0
        self._waiters: list[tuple[int, Waiter]] = []
        self.producers = ProducerStateManager()
        for batch in self._batches:
            header = read_header(batch)
            update = self.producers.prepare(batch, [(0, header)], Origin.REPLICATION)
            self.producers.commit(update, header.next_offset)
        # The high watermark lags until the followers have fetched again.
        truth.replicate(self.leader_epoch, self.log_end_offset, self._advance)

    @property
    def commits_at_once(self) -> bool:
        return self.standing.commits_at_once

    @property
    def log(self) -> "Replica":
        return self

    @property
    def log_end_offset(self) -> int:
        return end_of(self._batches)

    def read(self, offset: int, _max_bytes: int, *, limit: int) -> "_Read":
        return _Read(
            [each for each in self._batches if offset < read_header(each).next_offset <= limit]
        )

    def begin_verification(self, claim: Claim) -> VerificationGuard | None:
        self._require_leader()
        return self.producers.begin_verification(claim)

    def expect(self, claim: Claim, coordinator_epoch: int) -> VerificationGuard | None:
        return self.producers.expect(claim, coordinator_epoch) if self.is_leader else None

    def append(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,  # noqa: ARG002
        header: object = None,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.CLIENT,
        marker: TxnMarker | None = None,
    ) -> LogAppendInfo:
        self._require_leader()
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        offset, headers = self.log_end_offset, list(iter_headers(data))
        try:
            update = self.producers.prepare(data, headers, origin, offset, guard, marker)
        except DuplicateSequence as duplicate:
            first, last = duplicate.batch.first_offset, duplicate.batch.last_offset
            return LogAppendInfo(first, last, -1, 0, duplicate=True)
        truth = self._truth
        for pos, header in headers:
            batch = bytearray(data[pos : pos + header.size])
            length = header.batch_length
            set_base_offset_and_epoch(batch, 0, self.log_end_offset, length, self.leader_epoch)
            self._batches.append(bytes(batch))
            if self.leader_epoch == truth.epoch:
                truth.batches.append(bytes(batch))
        self.producers.commit(update, self.log_end_offset)
        truth.replicate(self.leader_epoch, self.log_end_offset, self._advance)
        return LogAppendInfo(offset, self.log_end_offset - 1, -1, 0)

    def add_waiter(self, offset: int, waiter: Waiter) -> None:
        if self._high_watermark >= offset:
            waiter(None)
        else:
            self._waiters.append((offset, waiter))

    def _require_leader(self) -> None:
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _advance(self, end: int) -> None:
        if self.is_leader and end > self._high_watermark:
            self._high_watermark = end
            self.producers.on_high_watermark(end)
            self._tell([each for each in self._waiters if each[0] <= end], None)

    def resign(self) -> None:
        self.is_leader = False
        self._tell(list(self._waiters), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _tell(self, reached: Iterable[tuple[int, Waiter]], error: KafkaError | None) -> None:
        for each in reached:
            self._waiters.remove(each)
        for _, waiter in reached:
            waiter(error)


class _Read:
    """Batches that were found, for a thread to read."""

    def __init__(self, batches: list[bytes]) -> None:
        self._batches = batches

    def read_bytes(self) -> bytes:
        # A few at a time: a load takes time, and an election may overtake it.
        return b"".join(self._batches[:3])
