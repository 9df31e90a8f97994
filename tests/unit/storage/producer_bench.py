"""Producer state on its own: batches without a log."""

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.producer_entry import BatchMetadata, Update
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.txn_index import AbortedTxn
from barnabas.storage.validator import Origin

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
    """A log that only counts offsets, over the state under test."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.end = 0

    def prepare(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> Update:
        return self.state.prepare(b"", [(0, batch)], origin=origin, base_offset=self.end)

    def append(self, batch: BatchHeader, origin: Origin = Origin.CLIENT) -> BatchMetadata | None:
        """The duplicate that `batch` is; None once it is in the log."""
        update = self.prepare(batch, origin)
        if update.duplicate is None:
            self.end += batch.last_offset_delta + 1
            self.state.commit(update, self.end)
        return update.duplicate

    def end_txn(
        self,
        kind: ControlType = ControlType.COMMIT,
        *,
        producer_id: int = PID,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        origin: Origin = Origin.COORDINATOR,
    ) -> list[AbortedTxn]:
        marker = build_marker(
            Marker(kind, coordinator_epoch),
            offset=0,
            timestamp=2000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
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
    """Another partition that knows what a snapshot of `state` says."""
    entries = [
        entry if windows_known else entry._replace(batches=entry.batches[-1:]) for entry in state
    ]
    restored = Partition()
    restored.end = state.map_end_offset
    restored.state.load(
        restored.end, entries, windows_known=windows_known, now_ms=now_ms, expiration_ms=5000
    )
    return restored
