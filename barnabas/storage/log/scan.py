"""Scanning a segment that may be damaged: the end of its valid batches, and their content."""

from collections.abc import Iterator
from itertools import islice

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    BatchHeader,
    CorruptRecordError,
    crc_matches,
    header_of,
    iter_headers,
)
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.files.files import File
from barnabas.storage.log.leader_epochs import LeaderEpochCache
from barnabas.storage.log.segment import Located, Segment

_CHUNK = 1 << 20


def scan(segment: Segment, epochs: LeaderEpochCache) -> None:
    """Truncate the segment before its first batch that is torn, damaged or out of order.

    The next flush makes the truncation durable; a crash before it scans again. Indexes are rebuilt,
    and the epochs of the batches are added to `epochs`.
    """
    segment.forget()
    end = 0
    for position, header in valid_batches(segment.file(), segment.base_offset):
        segment.note_batch(header.last_offset, position, header.max_timestamp, header.size)
        if header.partition_leader_epoch >= 0:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        end = position + header.size
    if end < segment.size:
        segment.file().truncate(end)
        segment.size = end


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the indexes from the batches, up to the first damaged one."""
    next_offset = segment.next_offset
    segment.forget()
    for position, header in valid_batches(segment.file(), segment.base_offset):
        segment.note_batch(header.last_offset, position, header.max_timestamp, header.size)
    segment.next_offset = next_offset
    if not segment.is_active:
        segment.complete()


def valid_batches(file: File, base_offset: int) -> Iterator[Located]:
    """Yield the batches of a segment file up to the first damaged one, or to its end."""
    size = file.size()
    position, next_offset = 0, base_offset
    chunk = memoryview(b"")
    while position < size:
        header = header_of(chunk)
        if header is None or header.size > len(chunk):
            wanted = _CHUNK if header is None else max(header.size, _CHUNK)
            chunk = memoryview(file.read(min(wanted, size - position), position))
            header = header_of(chunk)
        if header is None or not _is_valid(chunk, header, next_offset, base_offset):
            return
        yield position, header
        position += header.size
        next_offset = header.next_offset
        chunk = chunk[header.size :]


def replicated_batches(
    data: Buffer, next_offset: int, max_batches: int
) -> list[tuple[int, BatchHeader]]:
    """Return position and header of the first batches that a leader sent for `next_offset`.

    Raises KafkaError(CORRUPT_MESSAGE) if a CRC or the order of offsets is wrong.
    """
    batches = []
    try:
        for pos, header in islice(iter_headers(data), max_batches):
            if (
                header.base_offset < next_offset
                or header.last_offset_delta < 0
                or not crc_matches(data, pos, header)
            ):
                raise CorruptRecordError(f"a leader sent {header} for offset {next_offset}")
            next_offset = header.next_offset
            batches.append((pos, header))
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return batches


def _is_valid(chunk: memoryview, header: BatchHeader, next_offset: int, base_offset: int) -> bool:
    return (
        header.size <= len(chunk)
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - base_offset < 2**31
        and crc_matches(chunk, 0, header)
    )
