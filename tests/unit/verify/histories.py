"""Histories for the tests: a model of a correct cluster, and functions to corrupt its history."""

import json
from collections import defaultdict
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from barnabas.verify.history import COMMITTED, UNCOMMITTED, Event, History, Partition, read_history
from barnabas.verify.judge import judge

GROUP = "g"


class Cluster:
    """A model of a correct cluster; it writes the history of its clients."""

    def __init__(self, *, compacted: bool = False, stages: list[dict[str, str]] = ()) -> None:  # type: ignore[assignment]
        self._file = StringIO()
        self._ticks = 0
        self.history = History(self._file, self._clock)
        self.logs: dict[Partition, list[tuple[str, str | None] | None]] = defaultdict(list)
        """The value and transaction of each record; None is a marker."""
        self.open: dict[str, set[Partition]] = {}
        self.aborted: set[str] = set()
        self.committed: dict[Partition, tuple[int, str | None]] = {}
        self._pending: dict[str, dict[Partition, int]] = {}
        self._positions: dict[tuple[str, Partition], int] = {}
        topics = {"t": {"partitions": 2, "compacted": compacted}}
        about = {"workload": "test", "seed": 0, "timeout": 10, "topics": topics}
        self.history.note("run", "run", "info", {**about, "stages": list(stages)})
        self._values = 0

    def _clock(self) -> float:
        self._ticks += 1
        return self._ticks / 1000

    # -- producers -------------------------------------------------------------------------------

    def init(self, proc: str) -> None:
        op = self.history.invoke(proc, "init", {"id": proc})
        self.history.ok(op, {"producer": [1, 0]})

    def send(
        self,
        proc: str,
        txn: str | None,
        at: Partition = ("t", 0),
        *,
        key: str | None = None,
        extra: Any = None,
        told: str = "ok",
        late: bool = False,
    ) -> str:
        """Send a record; `told` is the outcome for the producer, "fail" writes nothing."""
        self._values += 1
        value = f"{proc}:{self._values}"
        sent = {"id": proc if txn else None, "txn": txn, "at": at, "late": late}
        op = self.history.invoke(proc, "send", {**sent, "records": [[key, value, extra]]})
        if told == "ok":
            self.history.ok(op, {"offset": len(self.logs[at])})
        elif told == "info":
            self.history.info(op, "REQUEST_TIMED_OUT")
        else:
            self.history.fail(op, told)
            return value
        self.logs[at].append((value, txn))
        if txn is not None:
            self.open.setdefault(txn, set()).add(at)
        return value

    def offsets(self, proc: str, txn: str, at: Partition, offset: int) -> None:
        value = {"id": proc, "txn": txn, "group": GROUP, "offsets": [[*at, offset]]}
        self.history.ok(self.history.invoke(proc, "offsets", value), {})
        self._pending.setdefault(txn, {})[at] = offset

    def end(self, proc: str, txn: str, *, commit: bool = True, told: str = "ok") -> None:
        op = self.history.invoke(proc, "end", {"id": proc, "txn": txn, "commit": commit})
        for at in sorted(self.open.pop(txn, ())):
            self.logs[at].append(None)
        if not commit:
            self.aborted.add(txn)
        else:
            for at, offset in self._pending.pop(txn, {}).items():
                self.committed[at] = offset, txn
        if told == "ok":
            self.history.ok(op, {})
        else:
            self.history.info(op, told)

    # -- readers ---------------------------------------------------------------------------------

    def stable(self, at: Partition) -> int:
        """Return the last stable offset."""
        for offset, record in enumerate(self.logs[at]):
            if record is not None and record[1] in self.open:
                return offset
        return len(self.logs[at])

    def read(
        self, reader: str, at: Partition, *, committed: bool = True, final: bool = False
    ) -> None:
        start = 0 if final else self._positions.get((reader, at), 0)
        end = self.stable(at) if committed else len(self.logs[at])
        records = [
            [offset, record[0]]
            for offset, record in enumerate(self.logs[at][:end])
            if offset >= start
            and record is not None
            and not (committed and record[1] in self.aborted)
        ]
        self._positions[reader, at] = end
        value = {
            "reader": reader,
            "isolation": COMMITTED if committed else UNCOMMITTED,
            "assignment": 0,
            "at": at,
            "from": start,
            "to": end,
            "records": records,
            "hw": len(self.logs[at]),
            "lso": self.stable(at),
            "epoch": 0,
            "final": final,
        }
        self.history.note(reader, "read", "ok", value)

    def observe(self, at: Partition) -> None:
        offset, txn = self.committed.get(at, (-1, None))
        op = self.history.invoke("watcher", "committed", {"group": GROUP, "at": at})
        self.history.ok(op, {"offset": offset, "txn": txn})

    def finish(self) -> None:
        """Read everything at the end."""
        for at in sorted({("t", 0), *self.logs}):
            self.observe(at)
            for committed in (True, False):
                self.read(f"final-{committed}", at, committed=committed, final=True)
        for at in sorted({("t", 0), *self.logs}):
            ends = {"start": 0, "hw": len(self.logs[at]), "lso": self.stable(at)}
            self.history.note("run", "final", "info", {"at": at, **ends, "open": [], "states": {}})

    def events(self) -> list[Event]:
        self._file.seek(0)
        return list(read_history(self._file))

    def save(self, file: Path) -> None:
        file.write_text(self._file.getvalue())


def spoilt(
    events: list[Event], which: Callable[[Event], bool], change: Callable[[dict[str, Any]], None]
) -> list[Event]:
    """Return the events, with changed values in those that `which` selects."""
    out = []
    for event in events:
        if which(event):
            value = json.loads(json.dumps(event.value))
            change(value)
            event = event._replace(value=value)
        out.append(event)
    return out


def names(events: list[Event]) -> set[str]:
    """Return the names of the anomalies that the checks find."""
    return {anomaly.name for anomaly in judge(events).anomalies}
