"""A follower's replication state: the position to fetch from, and the meaning of each response.

A follower fetches from its log end offset and names the epoch of its last record. A leader whose
log ended that epoch earlier answers with the diverging epoch: the follower truncates its log to the
last offset on which both logs certainly agree and fetches again, until nothing diverges (KIP-101,
KIP-279, KIP-320, KIP-595). It fetches only in an epoch that the controller has announced to this
broker. Pure: the fetcher carries out the steps that are decided here.
"""

import asyncio
from typing import Final, NamedTuple, Protocol, cast

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.varint import Buffer

NOTHING: Final = b""


class FollowerLog(Protocol):
    """The part of a follower's log that these decisions read."""

    log_start_offset: int
    log_end_offset: int

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]: ...


class Append(NamedTuple):
    """The step that appends batches at the log end; there may be none."""

    records: Buffer


class Truncation(NamedTuple):
    """The step that truncates the log to `offset`: the leader has other records from there on."""

    offset: int


class RestartLog(NamedTuple):
    """The step that discards the whole log and restarts it at `offset`, with these batches."""

    offset: int
    records: Buffer = NOTHING


class BoundsQuery(NamedTuple):
    """The step that queries the bounds of the leader's log: the fetch offset is outside them."""


class Retry(NamedTuple):
    """The step that backs off: a broker has no current metadata yet, or a disk is damaged."""

    error: ErrorCode


Step = Append | Truncation | RestartLog | BoundsQuery | Retry


def judge(log: FollowerLog, answer: PartitionData) -> Step:
    """Return the step that follows from a response to a fetch from the log end."""
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return BoundsQuery()
    if answer.error_code:
        return Retry(ErrorCode.of(answer.error_code))
    if answer.diverging_epoch.epoch >= 0:
        return Truncation(agreed_end(log, answer.diverging_epoch))
    records = cast(Buffer, answer.records or NOTHING)
    if log.log_start_offset == log.log_end_offset and len(records) >= HEADER_SIZE:
        base_offset = read_header(records, 0, False).base_offset
        if base_offset < log.log_end_offset:
            # The leader's log starts within a batch, and only whole batches are sent.
            return RestartLog(base_offset, records)
    return Append(records)


def agreed_end(log: FollowerLog, diverging: EpochEndOffset) -> int:
    """Return the offset up to which both logs may agree, given the diverging epoch (KIP-279).

    An epoch that only one of the logs knows is skipped. The rest may still diverge, at a lower
    offset.
    """
    _, end = log.offset_for_epoch(diverging.epoch)
    own_end = log.log_end_offset if end < 0 else end
    return min(own_end, diverging.end_offset, log.log_end_offset)


def judge_bounds(log: FollowerLog, start: int, end: int) -> Step:
    """Return the step after OFFSET_OUT_OF_RANGE, given the bounds of the leader's log."""
    if end < log.log_end_offset:
        # Only after an unclean election has a leader fewer records than a follower.
        return Truncation(end)
    if start > log.log_end_offset:
        return RestartLog(start)
    return Retry(ErrorCode.OFFSET_OUT_OF_RANGE)


class FollowerState:
    """The state of one partition while this broker follows it in one leader epoch."""

    __slots__ = ("_held", "awaited_flush", "failures", "lag", "leader_epoch", "leader_id",
                 "partition", "stopped", "work")  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.lag: int | None = None
        """Number of committed records that are missing here; None until the first answer."""
        self.failures = 0
        """Number of errors in a row."""
        self.awaited_flush: int | None = None
        """The log end that a requested fsync will cover, if one is awaited."""
        self.stopped = False
        """Once true the fetcher must not change the log any more."""
        self.work: asyncio.Task[None] | None = None
        """The task that truncates the log off the loop; the next leadership waits for it."""
        self._held = False

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and partition."""
        return self.partition.topic_id, self.partition.index

    @property
    def ready(self) -> bool:
        """Whether it may be fetched. If the topic flushes first, its whole log must be flushed: the
        fetch offset tells the leader which records are durable here."""
        return not (self._held or self.stopped or self._is_unflushed)

    @property
    def awaits_flush_only(self) -> bool:
        """Whether a missing flush is the only reason not to fetch."""
        return self._is_unflushed and not (self._held or self.stopped)

    @property
    def _is_unflushed(self) -> bool:
        partition = self.partition
        return partition.flushes_first and partition.durable_end != partition.log.log_end_offset

    def hold(self) -> None:
        """Stop fetching until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False

    def wanted(self, max_bytes: int) -> FetchPartition:
        """Return the next request for the partition."""
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
        """Whether the response to `asked` still fits this follower's epoch and log end."""
        return (
            not self.stopped
            and asked.current_leader_epoch == self.leader_epoch
            and asked.fetch_offset == self.partition.log.log_end_offset
        )

    def learn(self, answer: PartitionData) -> None:
        """Take over the high watermark and the log start of the leader."""
        partition, log = self.partition, self.partition.log
        partition.learn_high_watermark(answer.high_watermark)
        start = min(answer.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.delete_records_before(start)
        self.lag = max(0, answer.high_watermark - log.log_end_offset)
        self.failures = 0
