"""A model of coordinators, leaders and the decisions topic, for the sink's protocol. No I/O.

It has the rules on which the protocol relies: KIP-98, an epoch for each transaction (KIP-890) and
kept transactions (KIP-939). Calls take effect at once; markers follow when someone waits for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.pipeline.sink.port import (
    End,
    Fate,
    FirstRecord,
    Identity,
    OpenTransaction,
    Pinned,
    Place,
    StoredDecision,
)
from barnabas.protocol.errors import ErrorCode, KafkaError

OUTPUT = "output"


@dataclass(eq=False)
class Transaction:
    """A transaction with records."""

    transactional_id: str
    ongoing: Identity
    rows: object
    committed: bool | None = None
    marked: bool = False

    @property
    def fate(self) -> Fate:
        if self.committed is None or not self.marked:
            return Fate.OPEN
        return Fate.COMMITTED if self.committed else Fate.ABORTED


@dataclass
class Id:
    """A transactional id at its coordinator."""

    client: Identity
    open: Transaction | None = None
    pinned: bool = False
    """Whether the open transaction has no timeout."""
    ended: tuple[Identity, bool] | None = None
    """The identity that ended the latest transaction, and how, until the next epoch."""
    marking: Transaction | None = None
    is_empty: bool = True
    """Whether no transaction was completed since InitProducerId."""

    @property
    def state(self) -> str:
        if self.open is not None:
            return "Ongoing"
        if self.marking is not None:
            return "PrepareCommit"
        return "Empty" if self.is_empty else "CompleteCommit"


class View(NamedTuple):
    """The answers of a coordinator and a leader that were deposed at some time."""

    open: list[OpenTransaction]
    states: dict[str, tuple[str, Identity]]
    decision: StoredDecision | None


@dataclass
class Model:
    """The cluster. `last_epoch` is the last epoch of a producer id."""

    last_epoch: int = 32_766
    ids: dict[str, Id] = field(default_factory=dict)
    written: list[Transaction] = field(default_factory=list)
    """The transactions of the output, by offset."""
    decisions: list[tuple[Transaction, bytes]] = field(default_factory=list)
    time_ms: int = 0
    _producer_ids: int = 0

    # -- the coordinator -------------------------------------------------------------------------

    def init(self, transactional_id: str) -> Identity:
        known = self._settled(transactional_id)
        if known is None:
            known = self.ids[transactional_id] = Id(Identity(self._fresh(), -1))
        if known.open is not None:
            self._decide(known, committed=False)
            self._settled(transactional_id)
        self._bump(known)
        known.pinned = False
        known.ended = None
        known.is_empty = True
        return known.client

    def pin(self, transactional_id: str) -> Pinned:
        known = self._settled(transactional_id)
        if known is None:
            return Pinned(self.init(transactional_id), None)
        self._bump(known)
        known.ended = None
        known.pinned = known.open is not None
        known.is_empty = known.open is None
        return Pinned(known.client, known.open.ongoing if known.open is not None else None)

    def end(self, transactional_id: str, producer: Identity, *, committed: bool) -> None:
        known = self.ids.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.open is None:
            if known.ended == (producer, committed):
                return
            same = known.ended is not None and known.ended[0] == producer
            if same or producer == known.client:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if producer != known.client:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        self._decide(known, committed=committed)
        known.ended = (producer, committed)

    def begin(self, transactional_id: str, producer: Identity, rows: object) -> Transaction:
        known = self._settled(transactional_id)
        if known is None or known.client != producer:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if known.open is None:
            known.open = Transaction(transactional_id, producer, rows)
            known.ended = None
        return known.open

    def _fresh(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def _bump(self, known: Id) -> None:
        producer_id, epoch = known.client
        if epoch >= self.last_epoch:
            known.client = Identity(self._fresh(), 0)
        else:
            known.client = Identity(producer_id, epoch + 1)

    def _decide(self, known: Id, *, committed: bool) -> None:
        assert known.open is not None
        known.open.committed = committed
        known.marking, known.open = known.open, None
        known.pinned = False
        known.ended = None
        known.is_empty = False
        self._bump(known)

    def _settled(self, transactional_id: str) -> Id | None:
        """Return an id after its markers are written: requests wait for that."""
        known = self.ids.get(transactional_id)
        if known is not None and known.marking is not None:
            known.marking.marked = True
            known.marking = None
        return known

    # -- the scheduler ---------------------------------------------------------------------------

    def write_markers(self) -> None:
        for transactional_id in self.ids:
            self._settled(transactional_id)

    def expire(self) -> None:
        """Let the timeout of every open transaction pass, but those that have none."""
        self.time_ms += 1_000_000
        for known in self.ids.values():
            if known.open is not None and not known.pinned:
                self._decide(known, committed=False)

    def view(self) -> View:
        states = {
            name: (each.state, each.open.ongoing if each.open else each.client)
            for name, each in self.ids.items()
        }
        return View(self.list_open(), states, self.last_decision(len(self.decisions)))

    # -- reads -----------------------------------------------------------------------------------

    def list_open(self) -> list[OpenTransaction]:
        return [
            OpenTransaction(name, each.open.ongoing, each.client, self.time_ms)
            for name, each in self.ids.items()
            if each.open is not None
        ]

    def last_decision(self, before: int) -> StoredDecision | None:
        for offset in range(before - 1, -1, -1):
            transaction, value = self.decisions[offset]
            if transaction.fate is Fate.COMMITTED:
                return StoredDecision(offset, value)
        return None


class ModelPort:
    """The port of a driver, and of its tasks, on the model."""

    def __init__(self, model: Model, driver: str) -> None:
        self.model = model
        self.driver = driver
        self.producer = Identity(-1, -1)
        self.deposed: View | None = None
        """The answers to reads while this driver reaches deposed brokers only."""

    async def list_open(self) -> list[OpenTransaction]:
        return (self.deposed or self.model.view()).open

    async def describe(self, transactional_ids: Sequence[str]) -> list[OpenTransaction | None]:
        rows = {each.transactional_id: each for each in await self.list_open()}
        return [rows.get(each) for each in transactional_ids]

    async def fence(self) -> None:
        self.producer = self.model.init(self.driver)

    async def pin(self, transactional_ids: Sequence[str]) -> list[Pinned | KafkaError]:
        return [self.model.pin(each) for each in transactional_ids]

    async def end(self, ends: Sequence[End]) -> list[KafkaError | None]:
        return [self._ended(each) for each in ends]

    def _ended(self, end: End) -> KafkaError | None:
        try:
            self.model.end(end.transactional_id, end.producer, committed=end.committed)
        except KafkaError as error:
            return error
        return None

    async def write_decision(self, value: bytes) -> int:
        transaction = self.model.begin(self.driver, self.producer, None)
        self.model.decisions.append((transaction, value))
        return len(self.model.decisions) - 1

    async def end_decision(self, *, committed: bool) -> None:
        self.model.end(self.driver, self.producer, committed=committed)

    async def decision_fate(self, offset: int) -> Fate:
        return self.model.decisions[offset][0].fate

    async def last_decision(self, before: int | None) -> StoredDecision | None:
        if before is None:
            return (self.deposed or self.model.view()).decision
        if any(each.fate is Fate.OPEN for each, _ in self.model.decisions[:before]):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return self.model.last_decision(before)

    async def fates(self, records: Sequence[FirstRecord]) -> list[Fate]:
        return [self.model.written[each.place.offset].fate for each in records]

    def now_ms(self) -> int:
        return self.model.time_ms

    async def sleep(self, seconds: float) -> None:
        self.model.time_ms += int(seconds * 1000) + 1
        self.model.write_markers()

    # -- tasks -----------------------------------------------------------------------------------

    async def state(self, transactional_id: str) -> tuple[str, Identity] | None:
        return (self.deposed or self.model.view()).states.get(transactional_id)

    async def init(self, transactional_id: str) -> Identity:
        return self.model.init(transactional_id)

    async def write(self, transactional_id: str, producer: Identity, rows: object) -> Place:
        transaction = self.model.begin(transactional_id, producer, rows)
        self.model.written.append(transaction)
        return Place(OUTPUT, 0, len(self.model.written) - 1)
