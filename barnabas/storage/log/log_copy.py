"""Copying a log into another log directory of the same broker, batch by batch.

Both logs are replicas of one partition, so the rules of KIP-101 for follower and leader apply to
them: the leader epoch tells whose records are at an offset.
"""

from typing import Final

from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import start_again, truncate

STEP_BATCHES: Final = 64
"""Batches that a thread appends before it yields: the event loop waits for the interpreter lock
meanwhile."""


def divergence(copy: Log, original: Log) -> int | None:
    """Return the offset from which the copy diverges from its original; None if it does not."""
    latest = copy.epochs.latest_epoch
    if latest < 0:
        return original.log_end_offset if copy.log_end_offset > original.log_end_offset else None
    epoch, end = original.offset_for_epoch(latest)
    if epoch < 0:
        # The copy's epoch is later than all of the original's: compare within the original's last
        # epoch.
        epoch, end = original.epochs.latest_epoch, original.log_end_offset
    if epoch == latest and end >= copy.log_end_offset:
        return None
    _, own_end = copy.offset_for_epoch(epoch)
    agreed = min(end, copy.log_end_offset if own_end < 0 else own_end)
    return agreed if agreed < copy.log_end_offset else None


def covers(one: Log, other: Log) -> bool:
    """Return whether every record of `other` is in `one`, or was deleted from it."""
    return other.log_end_offset <= one.log_end_offset and divergence(other, one) is None


def furthest(one: Log, other: Log) -> tuple[Log, Log]:
    """Return the log of a partition that was written last, and the other one.

    A later leader epoch counts more than a later end. Records deleted from either log stay deleted.
    """
    if (one.epochs.latest_epoch, one.log_end_offset) < (
        other.epochs.latest_epoch,
        other.log_end_offset,
    ):
        one, other = other, one
    one.advance_high_watermark(other.high_watermark)
    one.delete_records_before(min(other.log_start_offset, one.high_watermark))
    return one, other


def follow_truncation(copy: Log, original: Log, *, now_ms: int) -> bool:
    """Truncate the copy to what the original has, at once; return whether anything was removed."""
    start = original.segments.batch_start(original.log_start_offset)
    offset = divergence(copy, original)
    if copy.log_end_offset < start or (offset is not None and offset <= copy.log_start_offset):
        start_again(copy, start, now_ms=now_ms).complete()
        return True
    if offset is not None:
        truncate(copy, offset, now_ms=now_ms).complete()
    return offset is not None


def append_step(copy: Log, data: Buffer, *, now_ms: int) -> int:
    """Append the first batches of `data`, flush what has rolled, and return their size in bytes.

    May run in any thread while the copy is not registered. Raises KafkaError as
    `Log.append_as_follower` does.
    """
    size = copy.append_as_follower(data, now_ms=now_ms, max_batches=STEP_BATCHES)
    if copy.flushed_offset < copy.segments.active.base_offset:
        copy.flush()
    return size
