"""The transactions in the files of a stopped broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.opening.dir_marks import CLEAN_SHUTDOWN

UNMARKED = "tests.integration.adversary.unmarked_broker"
"""The program of a broker that omits markers."""


def transactions(data: Path) -> dict[str, TransactionMetadata]:
    """Return the last state of each transactional id."""
    found: dict[str, TransactionMetadata] = {}
    for directory in sorted(data.glob("__transaction_state-*")):
        for log, position, header in _batches(directory):
            found.update(_transactions(log, position, header))
    return found


def open_in(data: Path, producer_id: int, places: frozenset[TopicPartition]) -> int:
    """Return in how many of the partitions the producer's last batch is not a marker."""
    return sum(
        last is not None and not last.is_control
        for topic, index in places
        for last in [_last_of(data / f"{topic}-{index}", producer_id)]
    )


def go_on(
    data: Path,
    transactional_id: str,
    *changes: Callable[[TransactionMetadata], TransactionMetadata],
) -> None:
    """Append other states of a transactional id, each made from its last one."""
    for directory in data.glob("__transaction_state-*"):
        known: dict[str, TransactionMetadata] = {}
        end, epoch = 0, 0
        for log, position, header in _batches(directory):
            end, epoch = header.next_offset, header.partition_leader_epoch
            known.update(_transactions(log, position, header))
        if transactional_id in known:
            records = [
                Record(end + number, changed.updated_ms, *encode_record(record))
                for number, change in enumerate(changes)
                for changed in [change(known[transactional_id])]
                for record in [TransactionRecord(changed.transactional_id, changed)]
            ]
            with max(directory.glob("*.log")).open("ab") as segment:
                segment.write(build_batch(records, leader_epoch=epoch))
    # The next start recovers the log.
    (data / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def cut_last(data: Path, transactional_id: str) -> None:
    """Remove the last record of a transactional id, which must be the last of its log."""
    for directory in data.glob("__transaction_state-*"):
        segment = max(directory.glob("*.log"))
        for log, position, header in _batches(directory):
            if header.next_offset == _end(directory) and transactional_id in dict(
                _transactions(log, position, header)
            ):
                segment.write_bytes(segment.read_bytes()[:position])
    (data / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def _end(directory: Path) -> int:
    return max((header.next_offset for _, _, header in _batches(directory)), default=0)


def _transactions(
    log: bytes, position: int, header: BatchHeader
) -> Iterator[tuple[str, TransactionMetadata]]:
    for record in iter_records(log, position, header):
        assert record.key is not None
        decoded = decode_record(record.key, record.value)
        if decoded is not None and decoded.value is not None:
            yield decoded.transactional_id, decoded.value


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
