"""Rebuilding producer state from the log: the newest valid snapshot, then the batches after it."""

from collections.abc import Iterator

from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.records.batch import BatchHeader, CorruptRecordError
from barnabas.storage.log.segment import Located, Segment
from barnabas.storage.log.segments import Segments
from barnabas.storage.producers.snapshot import Snapshots
from barnabas.storage.producers.state import ProducerStateManager


def rebuild_producers(
    segments: Segments,
    producers: ProducerStateManager,
    snapshots: Snapshots,
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    expiration_ms: int,
    from_offset: int | None = None,
) -> None:
    """Bring `producers` to the log end, each with its full window of batches.

    `from_offset` also rebuilds the indexes of aborted transactions of the segments that begin there
    or later.
    """
    newest = log_end_offset if from_offset is None else from_offset
    start = snapshots.load_newest(
        producers,
        log_start_offset=log_start_offset,
        log_end_offset=newest,
        now_ms=now_ms,
        expiration_ms=expiration_ms,
    )
    _extend_windows(segments, producers, start)
    for segment in segments.from_offset(start):
        rebuilds_index = from_offset is not None and segment.base_offset >= from_offset
        if rebuilds_index:
            segment.txn_index.reset()
        for position, header in readable_headers(segment, start):
            try:
                aborted = producers.replay(*_replayable(segment, position, header))
            except (KafkaError, ProtocolError):
                # A damaged marker: its transaction counts as open, because its outcome is unknown.
                continue
            if aborted and rebuilds_index:
                segment.txn_index.append(aborted)
    producers.map_end_offset = log_end_offset


def _replayable(
    segment: Segment, position: int, header: BatchHeader
) -> tuple[bytes, list[tuple[int, BatchHeader]]]:
    # Only a marker's record says more than the header of its batch.
    data = segment.read_batch(position, header) if header.is_control else b""
    return data, [(0, header)]


def _extend_windows(segments: Segments, producers: ProducerStateManager, before: int) -> None:
    for segment in reversed(list(segments)):
        if not producers.windows_wanted:
            return
        if segment.base_offset < before:
            headers = [header for _, header in readable_headers(segment)]
            producers.extend_windows([h for h in headers if h.last_offset < before])


def readable_headers(segment: Segment, offset: int = 0) -> Iterator[Located]:
    """Yield the batches from `offset` on, up to a damaged one.

    Damage in a range that was once durable is reported to its readers; the log opens nevertheless.
    """
    try:
        yield from segment.headers(segment.position_of(offset))
    except CorruptRecordError:
        return
