"""What a stopped broker's files say about transactions."""

from collections.abc import Iterator
from pathlib import Path

from barnabas.coordinator.transaction.metadata import TopicPartition, Transaction
from barnabas.coordinator.transaction.records import decode_record
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.record import iter_records


def transactions(data: Path) -> dict[str, Transaction]:
    """The last state of each transactional id."""
    found: dict[str, Transaction] = {}
    for directory in sorted(data.glob("__transaction_state-*")):
        for log, position, header in _batches(directory):
            for record in iter_records(log, position, header):
                assert record.key is not None
                decoded = decode_record(record.key, record.value)
                if decoded is not None and decoded.value is not None:
                    found[decoded.transactional_id] = decoded.value
    return found


def open_in(data: Path, producer_id: int, places: frozenset[TopicPartition]) -> int:
    """In how many of the partitions the producer's last batch is no marker."""
    return sum(
        last is not None and not last.is_control
        for topic, index in places
        for last in [_last_of(data / f"{topic}-{index}", producer_id)]
    )


def _last_of(directory: Path, producer_id: int) -> BatchHeader | None:
    last = None
    for _, _, header in _batches(directory):
        if header.producer_id == producer_id:
            last = header
    return last


def _batches(directory: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    for segment in sorted(directory.glob("*.log")):
        log = segment.read_bytes()
        for position, header in iter_headers(log):
            yield log, position, header
