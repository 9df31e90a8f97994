"""A partition that verifies transactions, without a log."""

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import BatchMetadata, DuplicateSequence
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import Opener, VerificationGuard
from tests.unit.storage.producer_bench import PID, header

TV1, TV2 = 0, 2


class Leader:
    """A partition whose producers are verified; `end` is its log end offset."""

    def __init__(self, state: ProducerStateManager | None = None) -> None:
        self.state = state or ProducerStateManager()
        self.end = self.state.map_end_offset

    def begin(
        self,
        sequence: int = 0,
        *,
        epoch: int = 0,
        key: str = "x",
        producer_id: int = PID,
        newer: bool = False,
    ) -> VerificationGuard | None:
        return self.state.begin_verification(Claim(key, producer_id, epoch, sequence, newer))

    def guard(self, sequence: int = 0, **options: object) -> VerificationGuard:
        guard = self.begin(sequence, **options)  # type: ignore[arg-type]
        assert guard is not None
        return guard

    def append(
        self,
        batch: BatchHeader,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.CLIENT,
    ) -> BatchMetadata | None:
        try:
            update = self.state.prepare(b"", [(0, batch)], origin, self.end, guard)
        except DuplicateSequence as duplicate:
            return duplicate.batch
        self.end += batch.last_offset_delta + 1
        self.state.commit(update, self.end)
        return None

    def send(
        self, sequence: int, guard: VerificationGuard | None = None, epoch: int = 0
    ) -> BatchMetadata | None:
        return self.append(header(sequence, epoch=epoch, transactional=True), guard)

    def mark(
        self,
        epoch: int = 0,
        *,
        producer_id: int = PID,
        version: int = TV1,
        coordinator_epoch: int = 0,
        kind: ControlType = ControlType.COMMIT,
        origin: Origin = Origin.COORDINATOR,
    ) -> None:
        marker = TxnMarker(producer_id, epoch, coordinator_epoch, bool(kind), version)
        data, header = marker.packed(2000)
        update = self.state.prepare(data, [(0, header)], origin, self.end, marker=marker)
        self.end += 1
        self.state.commit(update, self.end)

    def opener(self, producer_id: int = PID) -> Opener | None:
        """Return the opener that the producer's open transaction was verified for."""
        entry = self.state.entry(producer_id)
        return None if entry is None else entry.opened_by

    @property
    def open(self) -> bool:
        entry = self.state.entry(PID)
        return entry is not None and entry.current_txn_first_offset is not None
