"""A history put in order: one pass over the events, after which every question is a look-up."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.verify.history import COMMITTED, FAIL, INFO, INVOKE, OK, CorruptHistory, Event, Place

_SEEN: Final = frozenset(
    ("run", "read", "snapshot", "topics", "admin", "recovery", "replica", "replica-end", "final")
)
"""Lines that stand for themselves."""


class Outcome(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """One record that a producer sent."""

    value: str
    proc: str
    txn: str | None
    at: Place
    key: str | None
    source: str | None
    """The value that it was made from, in a pipeline."""
    amount: int
    late: bool
    line: int
    status: str = INFO
    offset: int | None = None
    """Where the broker said it went."""


@dataclass(slots=True)
class OffsetCommit:
    """A group's offsets in a transaction."""

    txn: str
    group: str
    offsets: dict[Place, int]
    line: int
    status: str = INFO


@dataclass(slots=True)
class Txn:
    """A transaction as its producer knew it."""

    name: str
    producer: str | None
    began: float
    writes: list[Write] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    ending: int | None = None
    """The line where its end was first asked for."""
    commit_asked: int | None = None
    ended: int | None = None
    """The line where its end was confirmed."""
    commit_status: str = INFO

    @property
    def outcome(self) -> Outcome:
        """As its producer could know it: surely aborted where no commit was ever asked for."""
        if self.commit_asked is None or self.commit_status == FAIL:
            return Outcome.ABORTED
        return Outcome.COMMITTED if self.commit_status == OK else Outcome.UNKNOWN


@dataclass(slots=True)
class Read:
    """What one partition gave to one reader at one time: every record from `start` up to `end`."""

    line: int
    reader: str
    committed: bool
    assignment: int
    at: Place
    start: int
    end: int
    records: list[tuple[int, str]]
    high_watermark: int
    last_stable_offset: int
    epoch: int
    node: int | None
    """The broker that was asked without regard to who leads; None for the leader."""
    asked: float
    """When it began, in s of the history; `told` is when it ended."""
    told: float
    txn: str | None
    final: bool


@dataclass(slots=True)
class Observation:
    """A group's committed offset as somebody was told it."""

    invoked: int
    line: int
    group: str
    at: Place
    offset: int
    txn: str | None


@dataclass(slots=True)
class View:
    """Which topics of the run one broker knew when it was asked."""

    node: int
    known: list[str]
    unknown: list[str]


class ReplicaBatch(NamedTuple):
    """A batch as one replica has it; `size` in bytes, `crc` -1 where it does not match."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int


class ReplicaEnd(NamedTuple):
    """How far a replica was read, how far it should have been, and what was in the way."""

    offset: int
    wanted: int
    error: str


@dataclass(slots=True)
class Replica:
    """What one broker had at the end."""

    node: int
    batches: dict[Place, list[ReplicaBatch]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Place, ReplicaEnd] = field(default_factory=dict)


@dataclass(slots=True)
class Operation:
    """An operation with its two lines; for what has no room of its own."""

    event: Event
    line: int
    done: Event | None = None
    done_line: int = -1


@dataclass(slots=True)
class Run:
    """A history in order."""

    about: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    snapshots: list[tuple[int, str]] = field(default_factory=list)
    lacking: list[tuple[Place | None, int, list[int], list[int]]] = field(default_factory=list)
    """Partitions that were not whole at the deadline: leader, in sync, replicas."""
    replicas: dict[int, Replica] = field(default_factory=dict)
    """By broker."""
    final: dict[Place, dict[str, Any]] = field(default_factory=dict)
    seen_committed: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)
    """Of each value its offset: as acknowledged, or else as first read."""
    final_committed: dict[Place, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    final_uncommitted: dict[Place, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    highest_read: dict[Place, int] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    """Transactions whose offsets somebody was told."""

    def is_compacted(self, topic: str) -> bool:
        return bool(self.about.get("topics", {}).get(topic, {}).get("compacted"))

    def outcome(self, txn: str | None) -> Outcome:
        """Of a transaction; an unknown one is committed once anything of it was seen."""
        if txn is None:
            return Outcome.COMMITTED
        outcome = self.txns[txn].outcome
        if outcome is Outcome.UNKNOWN and self._was_seen(self.txns[txn]):
            return Outcome.COMMITTED
        return outcome

    def _was_seen(self, txn: Txn) -> bool:
        return txn.name in self.shown or any(
            write.value in self.seen_committed for write in txn.writes
        )

    @property
    def has_final_reads(self) -> bool:
        """Whether everything was read again at the end; without that nothing can be called lost."""
        return bool(self.final)

    def finally_visible(self) -> Iterator[tuple[Place, int, str]]:
        """Everything that a read_committed reader found at the end."""
        for at, found in self.final_committed.items():
            for offset, value in found.items():
                yield at, offset, value


def load(events: Iterable[Event]) -> Run:
    """Raises CorruptHistory for a completion without its operation."""
    loader = _Loader()
    for line, event in enumerate(events):
        loader.take(line, event)
    return loader.run


class _Loader:
    def __init__(self) -> None:
        self.run = Run()
        self._open: dict[int, tuple[Operation, Any]] = {}

    def take(self, line: int, event: Event) -> None:
        try:
            if event.type == INVOKE:
                operation = Operation(event, line)
                self.run.operations.append(operation)
                self._open[event.op] = operation, self._invoked(line, event)
            elif event.f in _SEEN:
                self._seen(line, event)
            else:
                self._done(line, event)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            text = f"line {line + 1}, {event.f} {event.type}: {type(error).__name__} {error}"
            raise CorruptHistory(text) from error

    def _invoked(self, line: int, event: Event) -> Any:
        value = event.value
        match event.f:
            case "send":
                return self._send(line, event)
            case "offsets":
                txn = self._txn(value["txn"], event)
                offsets = {(topic, index): offset for topic, index, offset in value["offsets"]}
                commit = OffsetCommit(txn.name, value["group"], offsets, line)
                txn.commits.append(commit)
                return commit
            case "end":
                txn = self._txn(value["txn"], event)
                if value.get("late"):
                    return None
                if txn.ending is None:
                    txn.ending = line
                if value["commit"]:
                    txn.commit_asked = line
                return txn
            case _:
                return None

    def _send(self, line: int, event: Event) -> list[Write]:
        value, run = event.value, self.run
        txn = None if value["txn"] is None else self._txn(value["txn"], event)
        writes = []
        for key, text, extra in value["records"]:
            write = Write(
                text,
                event.proc,
                value["txn"],
                _place(value["at"]),
                key,
                extra if isinstance(extra, str) else None,
                extra if isinstance(extra, int) else 0,
                bool(value.get("late")),
                line,
            )
            if text in run.writes:
                raise ValueError(f"{text} is sent twice, and tells nothing")
            run.writes[text] = write
            writes.append(write)
            if txn is not None and not write.late:
                txn.writes.append(write)
        return writes

    def _txn(self, name: str, event: Event) -> Txn:
        known = self.run.txns.get(name)
        if known is None:
            known = self.run.txns[name] = Txn(name, event.value["id"], event.t)
        return known

    def _done(self, line: int, event: Event) -> None:
        operation, what = self._open.pop(event.op)
        operation.done, operation.done_line = event, line
        value, run = event.value, self.run
        if isinstance(what, list):
            for index, write in enumerate(what):
                write.status = event.type
                if event.type == OK:
                    write.offset = value["offset"] + index
                    run.offsets[write.value] = write.offset
        elif isinstance(what, OffsetCommit):
            what.status = event.type
        elif isinstance(what, Txn):
            if operation.event.value["commit"]:
                what.commit_status = event.type
            if event.type == OK:
                what.ended = line
        elif event.f == "committed" and event.type == OK:
            asked = operation.event.value
            self.run.observations.append(
                Observation(
                    operation.line,
                    line,
                    asked["group"],
                    _place(asked["at"]),
                    value["offset"],
                    value["txn"],
                )
            )
            if value["txn"] is not None:
                run.shown.add(value["txn"])

    def _seen(self, line: int, event: Event) -> None:
        value, run = event.value, self.run
        match event.f:
            case "run":
                run.about = value
            case "snapshot":
                run.snapshots.append((line, value["reader"]))
            case "topics":
                run.views.append(View(value["node"], value["known"], value["unknown"]))
            case "admin":
                pass
            case "recovery":
                run.lacking = [
                    (None if at is None else _place(at), *others)
                    for at, *others in value["lacking"]
                ]
            case "replica" | "replica-end":
                self._replica(event.f, value)
            case "final":
                run.final[_place(value["at"])] = value
            case _:
                self._read(line, event.t, value)

    def _replica(self, f: str, value: dict[str, Any]) -> None:
        at, node = _place(value["at"]), value["node"]
        replica = self.run.replicas.setdefault(node, Replica(node))
        if f == "replica":
            replica.batches[at] += [ReplicaBatch(*each) for each in value["batches"]]
        else:
            replica.ends[at] = ReplicaEnd(value["to"], value["wanted"], value["error"])

    def _read(self, line: int, t: float, value: dict[str, Any]) -> None:
        run = self.run
        read = Read(
            line,
            value["reader"],
            value["isolation"] == COMMITTED,
            value["assignment"],
            _place(value["at"]),
            value["from"],
            value["to"],
            [(offset, text) for offset, text in value["records"]],
            value["hw"],
            value["lso"],
            value["epoch"],
            value.get("node"),
            value.get("asked", -1.0),
            t,
            value.get("txn"),
            bool(value.get("final")),
        )
        run.reads.append(read)
        for offset, text in read.records:
            run.offsets.setdefault(text, offset)
            if read.committed:
                run.seen_committed.add(text)
        if read.records:
            highest = max(offset for offset, _ in read.records)
            run.highest_read[read.at] = max(run.highest_read.get(read.at, -1), highest)
        if read.final:
            found = run.final_committed if read.committed else run.final_uncommitted
            found[read.at].update(read.records)


def _place(value: list[Any]) -> Place:
    topic, partition = value
    return str(topic), int(partition)
