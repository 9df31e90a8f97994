"""A partition that verifies transactions, without a log."""

from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.storage.producer_entry import BatchMetadata
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.validator import Origin
from barnabas.storage.verification import Guard
from tests.unit.storage.producer_bench import PID, header

TV1, TV2 = 0, 2


class Leader:
    """A partition whose producers are verified; `end` is its log's end."""

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
    ) -> Guard | None:
        return self.state.begin_verification(Claim(key, producer_id, epoch, sequence, newer))

    def guard(self, sequence: int = 0, **options: object) -> Guard:
        guard = self.begin(sequence, **options)  # type: ignore[arg-type]
        assert guard is not None
        return guard

    def append(
        self,
        batch: BatchHeader,
        guard: Guard | None = None,
        origin: Origin = Origin.CLIENT,
    ) -> BatchMetadata | None:
        update = self.state.prepare(b"", [(0, batch)], origin, self.end, guard)
        if update.duplicate is None:
            self.end += batch.last_offset_delta + 1
            self.state.commit(update, self.end)
        return update.duplicate

    def send(
        self, sequence: int, guard: Guard | None = None, epoch: int = 0
    ) -> BatchMetadata | None:
        return self.append(header(sequence, epoch=epoch, transactional=True), guard)

    def mark(
        self,
        epoch: int = 0,
        *,
        version: int = TV1,
        coordinator_epoch: int = 0,
        kind: ControlType = ControlType.COMMIT,
        origin: Origin = Origin.COORDINATOR,
    ) -> None:
        marker = build_marker(
            Marker(kind, coordinator_epoch),
            offset=0,
            timestamp=2000,
            producer_id=PID,
            producer_epoch=epoch,
        )
        update = self.state.prepare(
            marker,
            [(0, read_header(marker))],
            origin,
            self.end,
            transaction_version=version,
        )
        self.end += 1
        self.state.commit(update, self.end)

    @property
    def open(self) -> bool:
        entry = self.state.entry(PID)
        return entry is not None and entry.current_txn_first_offset is not None
