"""The load of a shard from its log, in slices that let the event loop run in between."""

import asyncio
import gc
from collections.abc import Iterator
from typing import TypeVar

from barnabas.coordinator.ports import Clock, PartitionLog, Shard, Timers
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    CorruptRecordError,
    crc_matches,
    iter_headers,
)
from barnabas.protocol.records.compression import inflation_bound
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import iter_records

S = TypeVar("S")
R = TypeVar("R")
SLICE_SECONDS = 0.0001
"""The longest time that a load keeps the event loop busy. A load in such slices takes no longer
than in slices of a millisecond, and other requests do not notice it."""
_SLICES_TO_FREEZE = 64
"""About 7 ms of load, before the garbage collector looks at more than its youngest generation."""


async def load(
    shard: Shard[S, R], log: PartitionLog, clock: Clock, timers: Timers, buffer_bytes: int
) -> None:
    """Replay the whole log; return when its last record is committed.

    Records above the high watermark count too: an earlier leader decided them, and this leader
    keeps them. Transactions may be open at the end: their markers are still to come. Raises
    KafkaError if leadership is lost, ProtocolError if a record cannot be read.
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
                        # The objects of a load live long. The collector would walk over all of
                        # them at once: 30 ms for 100,000 offsets.
                        gc.freeze()
                    await timers.pause()
                    slice_end = clock.monotonic() + SLICE_SECONDS
            offset = header.next_offset
    await _committed(log, end)


def _check(data: bytes, position: int, header: BatchHeader) -> None:
    if not crc_matches(data, position, header):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")


def _replayed(
    shard: Shard[S, R], data: bytes, position: int, header: BatchHeader, start: int
) -> Iterator[None]:
    """Replay a batch from offset `start` on; the load may pause at every yield."""
    if header.is_control:
        # Compaction keeps the last batch of a producer, but not always its record.
        marker = read_marker(data, position, header) if header.record_count else None
        if marker is not None and header.last_offset >= start:
            yield from shard.replay_marker(
                marker.producer_id, marker.producer_epoch, marker.committed
            )
        yield
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in iter_records(data, position, header, max_bytes=inflation_bound(header.size)):
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
