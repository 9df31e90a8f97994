"""Producer state from the log itself: the newest valid snapshot, then the batches after it."""

from collections.abc import Iterator

from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.records.batch import BatchHeader, CorruptRecordError
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.segment import Located, Segment
from barnabas.storage.segments import Segments


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
    """Brings `producers` to the log's end, with the full window of each.

    `from_offset` also rebuilds the indexes of aborted transactions of the segments that begin
    there or later.
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
                # A rotten marker: what it ended counts as open, for nobody knows how it ended.
                continue
            if aborted and rebuilds_index:
                segment.txn_index.append(aborted)
    producers.map_end_offset = log_end_offset


def _replayable(
    segment: Segment, position: int, header: BatchHeader
) -> tuple[bytes, list[tuple[int, BatchHeader]]]:
    # Only a marker's record says something that its header does not.
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
    """The batches from `offset` on, up to a damaged one.

    Damage in a stretch that was once durable is for whoever reads it to be told of; a log opens
    all the same.
    """
    try:
        yield from segment.headers(segment.position_of(offset))
    except CorruptRecordError:
        return
