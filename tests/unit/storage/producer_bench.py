"""The producer state of a partition: batches without a log."""

from dataclasses import replace

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import (
    AbortedTxn,
    BatchMetadata,
    DuplicateSequence,
    ProducerUpdate,
)
from barnabas.storage.producers.state import ProducerStateManager

PID = 7


def header(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = PID,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    batch = build_batch(
        [Record(i, timestamp, b"k", b"v") for i in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return read_header(batch)


class Partition:
    """A log that only counts offsets, on top of the state under test."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.end = 0

    def prepare(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> ProducerUpdate:
        return self.state.prepare(b"", [(0, batch)], origin=origin, base_offset=self.end)

    def append(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> BatchMetadata | None:
        """Append `batch`; return the batch that it repeats, None if it was appended."""
        try:
            update = self.prepare(batch, origin)
        except DuplicateSequence as duplicate:
            return duplicate.batch
        self.end += batch.last_offset_delta + 1
        self.state.commit(update, self.end)
        return None

    def end_txn(
        self,
        kind: ControlType = ControlType.COMMIT,
        *,
        producer_id: int = PID,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        origin: Origin = Origin.COORDINATOR,
    ) -> list[AbortedTxn]:
        marker = TxnMarker(producer_id, epoch, coordinator_epoch, bool(kind)).packed(2000)[0]
        batches = [(0, read_header(marker))]
        update = self.state.prepare(marker, batches, origin=origin, base_offset=self.end)
        self.end += 1
        return self.state.commit(update, self.end)

    def refuses(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> ErrorCode:
        before = list(self.state)
        with pytest.raises(KafkaError) as caught:
            self.prepare(batch, origin)
        assert list(self.state) == before
        return caught.value.code


def load(state: ProducerStateManager, *, windows_known: bool, now_ms: int = 0) -> Partition:
    """Return another partition, whose state is loaded from a snapshot of `state`."""
    entries = [
        entry if windows_known else replace(entry, batches=entry.batches[-1:]) for entry in state
    ]
    restored = Partition()
    restored.end = state.map_end_offset
    restored.state.load(
        restored.end, entries, windows_known=windows_known, now_ms=now_ms, expiration_ms=5000
    )
    return restored
