"""The checks of open transactions at the end (C13) and of errors that producers get (C16)."""

import math
from collections.abc import Iterator
from typing import Final

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import FAIL, INFO, OK
from barnabas.verify.run import Operation, Run

NO_FINAL_READ: Final = "no-final-read"
_OPEN_STATES: Final = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"))

_FENCING: Final = frozenset(
    (
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
    )
)
_FORGOTTEN: Final = "INVALID_PRODUCER_ID_MAPPING"
"""The error for a transactional id that was not used for `ids_kept` s and has expired."""
_SEQUENCE: Final = frozenset(("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"))
_FAULTS: Final = frozenset(
    ("UNKNOWN_SERVER_ERROR", "CORRUPT_MESSAGE", "INVALID_RECORD", "INVALID_REQUEST")
)


def nothing_hangs(run: Run) -> Iterator[Anomaly]:
    """C13: at the end no transaction is open, so read_committed consumers reach the end."""
    for at, end in run.final.items():
        if end["lso"] < end["hw"]:
            producers = ", ".join(f"{pid} from {first}" for pid, first in end["open"])
            text = f"last stable offset {end['lso']}, high watermark {end['hw']}"
            text += f"; open: producer {producers}" if producers else ""
            yield Anomaly("C13", "hanging-transaction", text, at, end["lso"])
    states = {name: state for end in run.final.values() for name, state in end["states"].items()}
    for name, state in sorted(states.items()):
        if state in _OPEN_STATES:
            yield Anomaly("C13", "undecided-transaction", f"{name} is still {state}")
    if run.about and not run.has_final_reads:
        yield Anomaly("C13", NO_FINAL_READ, "the cluster could not be read to its end")


def no_unjust_refusal(run: Run) -> Iterator[Anomaly]:
    """C16: a correct producer is refused only if another producer has taken over its id.

    It is neither fenced nor gets an error for its sequence. InitProducerId always succeeds.
    """
    timeout = float(run.about.get("timeout", 0))
    kept = float(run.about.get("ids_kept") or math.inf)
    sessions: dict[str, tuple[int, bool]] = {}
    active: dict[str, float] = {}
    inits = _inits(run)
    for operation in run.operations:
        event, done = operation.event, operation.done
        if event.f not in ("init", "send", "offsets", "end") or event.value.get("late"):
            continue
        began, clean = sessions.get(event.proc, (-1, True))
        if event.f == "init" and done is not None and done.type == OK:
            began, clean = operation.line, True
        elif (clean or event.f == "init") and done is not None and done.type in (FAIL, INFO):
            replaced = any(
                other.event.proc != event.proc
                and other.line < operation.done_line
                and _may_come_after(other, began)
                for other in inits.get(event.value["id"], ())
            )
            waited = _since_begin(run, operation)
            forgotten = done.err == _FORGOTTEN and done.t - active.get(event.proc, 0.0) >= kept
            timed_out = waited >= timeout or forgotten
            if _is_unjust(operation, replaced=replaced, timed_out=timed_out):
                text = f"{event.proc}: {event.f} was answered {done.err}"
                at = event.value.get("at")
                yield Anomaly("C16", "unjust-refusal", text, (at[0], at[1]) if at else None)
        if done is None or done.type != OK:
            clean = False
        else:
            active[event.proc] = event.t
        sessions[event.proc] = began, clean


def no_zombies(run: Run) -> Iterator[Anomaly]:
    """C16: after another producer has taken over its transactional id, no operation succeeds."""
    sessions: dict[str, int] = {}
    taken: dict[str, Operation] = {}
    for operation in run.operations:
        event, done = operation.event, operation.done
        if event.value.get("id") is None or event.value.get("late"):
            continue
        if done is None or done.type != OK:
            continue
        if event.f == "init":
            sessions[event.proc] = operation.done_line
            last = taken.get(event.value["id"])
            if last is None or operation.line > last.line:
                taken[event.value["id"]] = operation
            continue
        other = taken.get(event.value["id"])
        if other is None or other.event.proc == event.proc:
            continue
        if other.line > sessions.get(event.proc, -1) and other.done_line < operation.line:
            text = f"{event.proc}: {event.f} was done after {other.event.proc} had taken over"
            yield Anomaly("C16", "zombie", text)


def _inits(run: Run) -> dict[str, list[Operation]]:
    inits: dict[str, list[Operation]] = {}
    for operation in run.operations:
        if operation.event.f == "init" and operation.event.value["id"] is not None:
            inits.setdefault(operation.event.value["id"], []).append(operation)
    return inits


def _may_come_after(init: Operation, line: int) -> bool:
    """Whether the broker may have executed it after `line`; a lost request may arrive any time."""
    return init.done is None or init.done.type == INFO or init.done_line > line


def _is_unjust(operation: Operation, *, replaced: bool, timed_out: bool) -> bool:
    done = operation.done
    assert done is not None
    err = done.err or ""
    if err in _SEQUENCE:
        # Also after retries: the broker knows the sequences that it has.
        return not replaced and not timed_out
    if err in _FAULTS:
        return True
    return done.type == FAIL and err in _FENCING and not replaced and not timed_out


def _since_begin(run: Run, operation: Operation) -> float:
    name = operation.event.value.get("txn")
    txn = run.txns.get(name) if name else None
    assert operation.done is not None
    return 0.0 if txn is None else operation.done.t - txn.began
