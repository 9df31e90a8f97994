"""The model of a run, built in one pass over the events of a history; the checks read it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.verify.history import (
    COMMITTED,
    FAIL,
    INFO,
    INVOKE,
    OK,
    CorruptHistory,
    Event,
    Partition,
)

_SEEN: Final = frozenset(
    ("run", "read", "snapshot", "topics", "admin", "recovery", "replica", "replica-end", "final")
)
"""The functions whose events have no invocation: one line is the whole event."""


class OperationOutcome(Enum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """A record that a producer sent."""

    value: str
    proc: str
    txn: str | None
    at: Partition
    key: str | None
    source: str | None
    """In a pipeline, the value of the input record."""
    amount: int
    late: bool
    line: int
    status: str = INFO
    offset: int | None = None
    """The offset in the acknowledgement."""


@dataclass(slots=True)
class OffsetCommit:
    """The committed offsets of a group in a transaction."""

    txn: str
    group: str
    offsets: dict[Partition, int]
    line: int
    status: str = INFO


@dataclass(slots=True)
class Txn:
    """A transaction as its producer knows it."""

    name: str
    producer: str | None
    began: float
    writes: list[Write] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    ending: int | None = None
    """The line of the first EndTxn."""
    commit_asked: int | None = None
    ended: int | None = None
    """The line of the successful response to EndTxn."""
    commit_status: str = INFO

    @property
    def outcome(self) -> OperationOutcome:
        """The outcome as the producer knows it: aborted for certain if it never sent a commit."""
        if self.commit_asked is None or self.commit_status == FAIL:
            return OperationOutcome.ABORTED
        return OperationOutcome.COMMITTED if self.commit_status == OK else OperationOutcome.UNKNOWN


@dataclass(slots=True)
class Read:
    """A fetch of a reader from one partition: every record from `start` up to `end`."""

    line: int
    reader: str
    committed: bool
    assignment: int
    at: Partition
    start: int
    end: int
    records: list[tuple[int, str]]
    high_watermark: int
    last_stable_offset: int
    epoch: int
    node: int | None
    """The broker of a read from a given broker; None for a read from the leader."""
    asked: float
    """The start of the request in s of the history; `told` is its end."""
    told: float
    txn: str | None
    final: bool


@dataclass(slots=True)
class Observation:
    """A committed offset of a group, as returned by OffsetFetch."""

    invoked: int
    line: int
    group: str
    at: Partition
    offset: int
    txn: str | None


@dataclass(slots=True)
class View:
    """The topics of the run that a broker knew at one time."""

    node: int
    known: list[str]
    unknown: list[str]


class ReplicaBatch(NamedTuple):
    """A batch in a replica; `size` is in bytes, `crc` is -1 if it does not match."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int


class ReplicaEnd(NamedTuple):
    """The offset up to which a replica was read, the target, and the error if it is lower."""

    offset: int
    wanted: int
    error: str


@dataclass(slots=True)
class Replica:
    """The batches of one broker at the end."""

    node: int
    batches: dict[Partition, list[ReplicaBatch]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Partition, ReplicaEnd] = field(default_factory=dict)


@dataclass(slots=True)
class Operation:
    """An operation with its two events and their lines."""

    event: Event
    line: int
    done: Event | None = None
    done_line: int = -1


@dataclass(slots=True)
class Run:
    """The model of a run."""

    about: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    snapshots: list[tuple[int, str]] = field(default_factory=list)
    lacking: list[tuple[Partition | None, int, list[int], list[int]]] = field(default_factory=list)
    """Partitions without leader or full ISR at the deadline: partition, leader, ISR, replicas."""
    replicas: dict[int, Replica] = field(default_factory=dict)
    """The replicas by broker."""
    final: dict[Partition, dict[str, Any]] = field(default_factory=dict)
    seen_committed: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)
    """The offset of each value: from its acknowledgement, or else from the first read."""
    final_committed: dict[Partition, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    final_uncommitted: dict[Partition, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    highest_read: dict[Partition, int] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    """Transactions with a committed offset that an OffsetFetch returned."""

    def is_compacted(self, topic: str) -> bool:
        return bool(self.about.get("topics", {}).get(topic, {}).get("compacted"))

    def outcome(self, txn: str | None) -> OperationOutcome:
        """Return the outcome of a transaction; an unknown one is committed once a part is seen."""
        if txn is None:
            return OperationOutcome.COMMITTED
        outcome = self.txns[txn].outcome
        if outcome is OperationOutcome.UNKNOWN and self._was_seen(self.txns[txn]):
            return OperationOutcome.COMMITTED
        return outcome

    def _was_seen(self, txn: Txn) -> bool:
        return txn.name in self.shown or any(
            write.value in self.seen_committed for write in txn.writes
        )

    @property
    def has_final_reads(self) -> bool:
        """Whether all records were read again at the end; otherwise no record counts as lost."""
        return bool(self.final)

    def finally_visible(self) -> Iterator[tuple[Partition, int, str]]:
        """Yield every record that the read_committed reader found at the end."""
        for at, found in self.final_committed.items():
            for offset, value in found.items():
                yield at, offset, value


def load(events: Iterable[Event]) -> Run:
    """Build the model; raises CorruptHistory, e.g. for a completion without an invocation."""
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
                _partition(value["at"]),
                key,
                extra if isinstance(extra, str) else None,
                extra if isinstance(extra, int) else 0,
                bool(value.get("late")),
                line,
            )
            if text in run.writes:
                raise ValueError(f"{text} is sent twice; values must be unique")
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
                    _partition(asked["at"]),
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
                    (None if at is None else _partition(at), *others)
                    for at, *others in value["lacking"]
                ]
            case "replica" | "replica-end":
                self._replica(event.f, value)
            case "final":
                run.final[_partition(value["at"])] = value
            case _:
                self._read(line, event.t, value)

    def _replica(self, f: str, value: dict[str, Any]) -> None:
        at, node = _partition(value["at"]), value["node"]
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
            _partition(value["at"]),
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


def _partition(value: list[Any]) -> Partition:
    topic, partition = value
    return str(topic), int(partition)
