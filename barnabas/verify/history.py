"""The history of a run as JSON lines: each operation is written before it is sent.

    {"t": 0.41, "op": 7, "proc": "w0", "f": "send", "type": "invoke", "value": {...}, "err": null}

`t` is in s since the start of the run. `type` is Jepsen's: an operation has an *invoke* line, then
an *ok* line, a *fail* line if it failed for certain, or an *info* line if its result is unknown
(timeouts, lost connections, retriable errors; an operation without a second line is unknown too).
The lines are in the order in which one process saw the events.

| f | value when invoked | value when ok |
|---|---|---|
| run | (info) workload, seed, timeout (s), ids_kept (s), topics by name, stages of a pipeline | |
| init | id | producer: [id, epoch] |
| send | id, txn, at, records: [[key, value, source or amount]], late | offset |
| offsets | id, txn, group, offsets: [[topic, partition, offset]] | |
| end | id, txn, commit, late | |
| committed | group, at | offset, txn that committed it |
| read | | reader, isolation, assignment, at, from, to, records: [[offset, value]], hw, lso, \
epoch, node, asked |
| topics | | node, known: [name], unknown: [name] |
| snapshot | | reader |
| admin | | did, error |
| recovery | | seconds, lacking: [[at, leader, in sync, replicas]] |
| replica | | at, node, batches: [[base offset, bytes, leader epoch, CRC]] |
| replica-end | | at, node, to, wanted, error |
| final | | at, start, hw, lso, open: [[producer id, first offset]], states: {id: state} |

The `node` of a read is the broker if a given broker was read, null for the leader; `asked` is the
`t` of the request. Reads without news are written only from time to time. `recovery` lists the
partitions without a leader or with replicas out of sync at the end; `at` is null for a broker that
did not answer. `at` is [topic, partition]. `late` marks a request that the workload delayed on
purpose, as a network may. `id` is the transactional id, null for a producer without transactions.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, Literal, NamedTuple

EventType = Literal["invoke", "ok", "fail", "info"]
INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"

COMMITTED: Final = "committed"
UNCOMMITTED: Final = "uncommitted"

Partition = tuple[str, int]
"""Topic and partition."""
Counts = Counter[tuple[str, str]]
"""The number of events by their `f` and `type`."""


class Event(NamedTuple):
    """One line of a history."""

    t: float
    op: int
    proc: str
    f: str
    type: EventType
    value: dict[str, Any]
    err: str | None = None


class CorruptHistory(ValueError):
    """The file is not a history, or is damaged."""


class History:
    """A writer of events to a file; `invoke` returns the number of an operation."""

    def __init__(self, file: IO[str], clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in s."""
        self.counts: Counts = Counter()
        self._file = file
        self._clock = clock
        self._began = clock()
        self._next_op = 0
        self._open: dict[int, tuple[str, str]] = {}

    def invoke(self, proc: str, f: str, value: dict[str, Any]) -> int:
        """Write an operation that is about to be sent; return its number."""
        op = self._number()
        self._open[op] = proc, f
        self._write(op, proc, f, INVOKE, value, None)
        return op

    def ok(self, op: int, value: dict[str, Any]) -> None:
        """Write that an operation succeeded."""
        self._write(op, *self._open.pop(op), OK, value, None)

    def fail(self, op: int, err: str) -> None:
        """Write that an operation failed for certain."""
        self._write(op, *self._open.pop(op), FAIL, {}, err)

    def info(self, op: int, err: str) -> None:
        """Write that the result of an operation is unknown."""
        self._write(op, *self._open.pop(op), INFO, {}, err)

    def note(self, proc: str, f: str, type_: EventType, value: dict[str, Any]) -> None:
        """Write an observation, which changed nothing."""
        self._write(self._number(), proc, f, type_, value, None)

    def now(self) -> float:
        """Return the `t` of the current time."""
        return round(self._clock() - self._began, 6)

    def _number(self) -> int:
        self._next_op += 1
        return self._next_op

    def _write(
        self, op: int, proc: str, f: str, type_: EventType, value: dict[str, Any], err: str | None
    ) -> None:
        self.counts[f, type_] += 1
        line = Event(self.now(), op, proc, f, type_, value, err)._asdict()
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        # The history must be complete even if this process crashes next.
        self._file.flush()


def read_history(lines: IO[str]) -> Iterator[Event]:
    """Yield the events of a file without an incomplete last line; raises CorruptHistory."""
    from pydantic import TypeAdapter, ValidationError

    from barnabas.config.faults import first_fault

    event = TypeAdapter(Event).validate_json
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            yield event(line)
        except ValidationError as error:
            raise CorruptHistory(f"line {number} is not an event: {first_fault(error)}") from error
