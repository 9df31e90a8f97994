"""A log that is copied into another one of the same broker, batch by batch.

Both are replicas of one partition, so what KIP-101 says of a follower and its leader holds for them
too: a leader epoch tells whose records at an offset they are.
"""

from typing import Final

from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log import Log
from barnabas.storage.truncation import start_again, truncate

STEP_BATCHES: Final = 64
"""Batches that a thread appends before it lets go: the loop waits for the interpreter meanwhile."""


def parting(copy: Log, original: Log) -> int | None:
    """From where on the copy has what its original has not; None where it has nothing such."""
    latest = copy.epochs.latest_epoch
    if latest < 0:
        return original.log_end_offset if copy.log_end_offset > original.log_end_offset else None
    epoch, end = original.offset_for_epoch(latest)
    if epoch < 0:
        # Younger than all that the original has by now: what of its last one is here?
        epoch, end = original.epochs.latest_epoch, original.log_end_offset
    if epoch == latest and end >= copy.log_end_offset:
        return None
    _, own_end = copy.offset_for_epoch(epoch)
    agreed = min(end, copy.log_end_offset if own_end < 0 else own_end)
    return agreed if agreed < copy.log_end_offset else None


def covers(one: Log, other: Log) -> bool:
    """Whether nothing is lost with `other`: all its records are in `one`, or were deleted."""
    return other.log_end_offset <= one.log_end_offset and parting(other, one) is None


def furthest(one: Log, other: Log) -> tuple[Log, Log]:
    """Of two logs of one partition the one that was written last, and the one that was not.

    A later leader epoch counts more than a later end. What was deleted from either stays deleted.
    """
    if (one.epochs.latest_epoch, one.log_end_offset) < (
        other.epochs.latest_epoch,
        other.log_end_offset,
    ):
        one, other = other, one
    one.advance_high_watermark(other.high_watermark)
    one.delete_records_before(min(other.log_start_offset, one.high_watermark))
    return one, other


def follow_cut(copy: Log, original: Log, *, now_ms: int) -> bool:
    """Takes from the copy what its original has not, on the spot; whether anything had to go."""
    start = original.segments.batch_start(original.log_start_offset)
    offset = parting(copy, original)
    if copy.log_end_offset < start or (offset is not None and offset <= copy.log_start_offset):
        start_again(copy, start, now_ms=now_ms).complete()
        return True
    if offset is not None:
        truncate(copy, offset, now_ms=now_ms).complete()
    return offset is not None


def append_step(copy: Log, data: Buffer, *, now_ms: int) -> int:
    """Appends the first batches of `data`, and flushes what has rolled; how many bytes they had.

    In any thread, as long as nobody else knows the copy. Raises KafkaError as
    `Log.append_as_follower` does.
    """
    size = copy.append_as_follower(data, now_ms=now_ms, max_batches=STEP_BATCHES)
    if copy.flushed_offset < copy.segments.active.base_offset:
        copy.flush()
    return size
