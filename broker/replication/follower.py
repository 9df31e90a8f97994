"""A partition as this broker follows its leader: where to read on, and what an answer means.

A follower asks for what is after its log's end, and names the epoch of its last record. A leader
whose log left that epoch earlier says where: the follower cuts its log to where both agree for
certain, and asks again, until nothing diverges (KIP-101, KIP-279, KIP-320, KIP-595). Nothing is
fetched in an epoch that the controller has not told to this broker. Pure: what is decided here the
fetcher carries out.
"""

import asyncio
from typing import Final, NamedTuple, Protocol, cast

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from barnabas.protocol.records.batch import HEADER_SIZE, peek_header
from barnabas.protocol.records.varint import Buffer

NOTHING: Final = b""


class FollowersLog(Protocol):
    """What must be known of a follower's log."""

    log_start_offset: int
    log_end_offset: int

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]: ...


class Append(NamedTuple):
    """These batches go on where the log ends; there may be none."""

    records: Buffer


class Truncate(NamedTuple):
    """The log has something from `offset` on that its leader has not."""

    offset: int


class StartAgain(NamedTuple):
    """The log is empty or of no use: it begins at `offset`, with these batches."""

    offset: int
    records: Buffer = NOTHING


class AskBounds(NamedTuple):
    """The leader's log has nothing at the follower's end: where is it?"""


class Retry(NamedTuple):
    """Not now: the leader or this broker has not heard yet who leads, or a disk is damaged."""

    error: ErrorCode


Step = Append | Truncate | StartAgain | AskBounds | Retry


def judge(log: FollowersLog, answer: PartitionData) -> Step:
    """What follows from an answer to a fetch from the log's end."""
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskBounds()
    if answer.error_code:
        return Retry(ErrorCode.of(answer.error_code))
    if answer.diverging_epoch.epoch >= 0:
        return Truncate(agreed_end(log, answer.diverging_epoch))
    records = cast(Buffer, answer.records or NOTHING)
    if log.log_start_offset == log.log_end_offset and len(records) >= HEADER_SIZE:
        base_offset = peek_header(records).base_offset
        if base_offset < log.log_end_offset:
            # The leader's log start is within a batch, and only whole batches are sent.
            return StartAgain(base_offset, records)
    return Append(records)


def agreed_end(log: FollowersLog, diverging: EpochEndOffset) -> int:
    """Up to where both logs may agree, given where the leader's left an epoch (KIP-279).

    An epoch that only one of them knows is skipped: what is left may still diverge, earlier.
    """
    _, end = log.offset_for_epoch(diverging.epoch)
    own_end = log.log_end_offset if end < 0 else end
    return min(own_end, diverging.end_offset, log.log_end_offset)


def judge_bounds(log: FollowersLog, start: int, end: int) -> Step:
    """What to do about OFFSET_OUT_OF_RANGE, now that the leader's bounds are known."""
    if end < log.log_end_offset:
        # Only an unclean election makes one a leader that has less.
        return Truncate(end)
    if start > log.log_end_offset:
        return StartAgain(start)
    return Retry(ErrorCode.OFFSET_OUT_OF_RANGE)


class Following:
    """A partition between becoming a follower in one leader epoch and ceasing to be."""

    __slots__ = ("_held", "awaited_flush", "failures", "lag", "leader_epoch", "leader_id",
                 "partition", "stopped", "work")  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.lag: int | None = None
        """Records that are committed and not here; None until the first answer."""
        self.failures = 0
        """Answers in a row that were errors."""
        self.awaited_flush: int | None = None
        """Up to where an fsync is waited for, if one is."""
        self.stopped = False
        """Once true nothing may be done to the log any more."""
        self.work: asyncio.Task[None] | None = None
        """What changes the log off the loop; whoever leads next waits for it."""
        self._held = False

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and partition."""
        return self.partition.topic_id, self.partition.index

    @property
    def ready(self) -> bool:
        """Whether more may be fetched: of a partition that flushes first only when all there is
        has been flushed, since what is asked for tells the leader what is durable here."""
        return not (self._held or self.stopped or self._is_unflushed)

    @property
    def lacks_only_a_flush(self) -> bool:
        """Whether nothing else is in the way of fetching more."""
        return self._is_unflushed and not (self._held or self.stopped)

    @property
    def _is_unflushed(self) -> bool:
        partition = self.partition
        return partition.flushes_first and partition.durable_end != partition.log.log_end_offset

    def hold(self) -> None:
        """Fetch nothing until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False

    def wanted(self, max_bytes: int) -> FetchPartition:
        """What to ask for next."""
        log = self.partition.log
        return FetchPartition(
            partition=self.partition.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    def answers(self, asked: FetchPartition) -> bool:
        """Whether the answer to `asked` still is one to this follower's question."""
        return (
            not self.stopped
            and asked.current_leader_epoch == self.leader_epoch
            and asked.fetch_offset == self.partition.log.log_end_offset
        )

    def learn(self, answer: PartitionData) -> None:
        """Take over what the leader says is committed, and where its log starts now."""
        partition, log = self.partition, self.partition.log
        partition.learn_high_watermark(answer.high_watermark)
        start = min(answer.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)
        self.lag = max(0, answer.high_watermark - log.log_end_offset)
        self.failures = 0
