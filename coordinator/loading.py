"""Rebuilding a shard from its log, in slices that leave the event loop to others."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

from barnabas.coordinator.ports import Clock, PartitionLog, Shard, Timers
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    CorruptRecordError,
    crc_matches,
    iter_headers,
)
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import iter_records

SLICE_SECONDS = 0.0001
"""How long a load may keep the event loop for itself: others wait no longer for their turn. As
quick a load as in slices of a millisecond, and who asks meanwhile does not notice."""
_SLICES_TO_FREEZE = 64
"""After about 7 ms, before the garbage collector has reason to look at more than the youngest."""


async def load(
    shard: Shard[Any], log: PartitionLog, clock: Clock, timers: Timers, buffer_bytes: int
) -> None:
    """Replay all that is in the log now; returns when its last record is committed.

    What is above the high watermark counts too: it was a leader's decision, and stays this one's.
    Transactions may be open at the end: their markers are still to come. Raises KafkaError where
    leadership is lost, ProtocolError where the log holds no such records.
    """
    offset, end = log.start_offset, log.end_offset
    slices = 0
    slice_end = clock.monotonic() + SLICE_SECONDS
    while offset < end:
        data = await log.read(offset, buffer_bytes)
        if not data:
            break
        for position, header in iter_headers(data):
            _check(data, position, header)
            for _ in _replayed(shard, data, position, header, offset):
                if clock.monotonic() >= slice_end:
                    slices += 1
                    if slices % _SLICES_TO_FREEZE == 0:
                        # What was loaded stays. The collector would walk over all of it at once:
                        # 30 ms for 100,000 offsets.
                        gc.freeze()
                    await timers.pause()
                    slice_end = clock.monotonic() + SLICE_SECONDS
            offset = header.next_offset
    await _committed(log, end)


def _check(data: bytes, position: int, header: BatchHeader) -> None:
    if not crc_matches(data, position, header):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")


def _replayed(
    shard: Shard[Any], data: bytes, position: int, header: BatchHeader, start: int
) -> Iterator[None]:
    """Replay a batch from offset `start` on; others may have their turn at every step."""
    if header.is_control:
        # Compaction leaves the last batch of a producer, but not always its record.
        marker = read_marker(data, position, header) if header.record_count else None
        if marker is not None and header.last_offset >= start:
            committed = marker.type is ControlType.COMMIT
            shard.replay_marker(header.producer_id, header.producer_epoch, committed)
        yield
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in iter_records(data, position, header):
        if record.offset >= start and record.key is not None:
            decoded = shard.decode(record.key, record.value)
            if decoded is not None:
                shard.replay(decoded, producer_id)
        yield


async def _committed(log: PartitionLog, end: int) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: KafkaError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    log.when_committed(end, settle)
    await done
