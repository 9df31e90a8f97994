"""Transactional ids whose epochs are almost used up, written into the log of a stopped broker.

32,766 calls of InitProducerId have the same effect, but take as many ms and more.
"""

from pathlib import Path
from struct import pack

from barnabas.protocol.codec import encode
from barnabas.protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, build_batch
from tests.referee.given import NOW
from tests.referee.scenarios import every_scenario

EPOCH = 32_764
"""The third epoch after this one is the one that no client may have."""

FIRST_PRODUCER_ID = 1_000_000
"""Far above the ids that a broker assigns in a comparison."""

PARTITIONS = 2
"""The number of partitions of `__transaction_state`, as in `brokers.SHARED`."""

_EMPTY = 0


def wear_out(data: Path) -> None:
    """Append to the logs under the directory `data`."""
    names = [each for scenario in every_scenario() if scenario.worn for each in scenario.worn_ids]
    for partition in range(PARTITIONS):
        segment = data / f"__transaction_state-{partition}" / f"{0:020}.log"
        end = _end_offset(segment.read_bytes())
        mine = [
            each for each in enumerate(names) if partition_for(each[1], PARTITIONS) == partition
        ]
        records = [_record(end + i, *each) for i, each in enumerate(mine)]
        with segment.open("ab") as file:
            file.write(build_batch(records, leader_epoch=0))


def _end_offset(segment: bytes) -> int:
    at = end = 0
    while at < len(segment):
        header = read_header(segment, at, False)
        at += header.size
        end = header.base_offset + header.last_offset_delta + 1
    return end


def _record(offset: int, number: int, name: str) -> Record:
    value = TransactionLogValue(
        producer_id=FIRST_PRODUCER_ID + number,
        producer_epoch=EPOCH,
        transaction_timeout_ms=60_000,
        transaction_status=_EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=-1,
    )
    key = pack(">h", 0) + encode(TransactionLogKey(transactional_id=name), 0)
    return Record(offset, NOW, key, pack(">h", 0) + encode(value, 0))
