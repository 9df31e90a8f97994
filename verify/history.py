"""What a run did, as JSON lines: an operation is written down before it is sent.

    {"t": 0.41, "op": 7, "proc": "w0", "f": "send", "type": "invoke", "value": {...}, "err": null}

`t` is in s since the run began. `type` is Jepsen's: an operation is *invoked*, and then it is *ok*,
it certainly did *fail*, or nobody knows (*info*: timeouts, lost connections, errors that pass, and
an operation without a second line). Lines stand in the order in which one process saw them.

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

`node` of a read is the broker that was asked though it may not lead, else null, and `asked` the `t`
at which it was; reads that tell nothing new are written down now and then. `recovery` says
what had no leader, or replicas out of sync, at the end; a broker that said nothing has no place.
A place `at` is [topic, partition]. `late` marks what the workload delayed on purpose, as a network
might. `id` is the transactional id, null for a producer without transactions.
"""

import json
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, NamedTuple

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"

COMMITTED: Final = "committed"
UNCOMMITTED: Final = "uncommitted"

Place = tuple[str, int]
"""Topic and partition."""


class Event(NamedTuple):
    """One line of a history."""

    t: float
    op: int
    proc: str
    f: str
    type: str
    value: dict[str, Any]
    err: str | None = None


class CorruptHistory(ValueError):
    """The file is no history, or one that was damaged."""


class History:
    """Writes events to a file; an operation is known by the number that `invoke` gave it."""

    def __init__(self, file: IO[str], clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in s."""
        self._file = file
        self._clock = clock
        self._began = clock()
        self._next_op = 0
        self._open: dict[int, tuple[str, str]] = {}

    def invoke(self, proc: str, f: str, value: dict[str, Any]) -> int:
        """Write down what is about to be sent."""
        op = self._number()
        self._open[op] = proc, f
        self._write(op, proc, f, INVOKE, value, None)
        return op

    def ok(self, op: int, value: dict[str, Any]) -> None:
        """The operation was done."""
        self._write(op, *self._open.pop(op), OK, value, None)

    def fail(self, op: int, err: str) -> None:
        """The operation was not done, and never will be."""
        self._write(op, *self._open.pop(op), FAIL, {}, err)

    def info(self, op: int, err: str) -> None:
        """Nobody knows whether the operation was done."""
        self._write(op, *self._open.pop(op), INFO, {}, err)

    def note(self, proc: str, f: str, type_: str, value: dict[str, Any]) -> None:
        """Something seen that changed nothing."""
        self._write(self._number(), proc, f, type_, value, None)

    def now(self) -> float:
        """The `t` of a line that is written now."""
        return round(self._clock() - self._began, 6)

    def _number(self) -> int:
        self._next_op += 1
        return self._next_op

    def _write(
        self, op: int, proc: str, f: str, type_: str, value: dict[str, Any], err: str | None
    ) -> None:
        line = Event(self.now(), op, proc, f, type_, value, err)._asdict()
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        # The file outlives whatever happens to this process next.
        self._file.flush()


def read_history(lines: IO[str]) -> Iterator[Event]:
    """The events of a file, the last line left out where it was cut off; raises CorruptHistory."""
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            yield Event(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise CorruptHistory(f"line {number} is no event: {error}") from error
