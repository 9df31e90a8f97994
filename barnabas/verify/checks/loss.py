"""The checks of lost writes (C3, C4) and of incomplete transactions (C7)."""

from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import OK, Partition
from barnabas.verify.run import Observation, OperationOutcome, Run, Txn, Write


def nothing_lost(run: Run) -> Iterator[Anomaly]:
    """C3 and C4: the final reads find every acknowledged record, by its isolation level."""
    if not run.has_final_reads:
        return
    newest = _Newest(run)
    there = {at: set(found.values()) for at, found in run.final_uncommitted.items()}
    for write in run.writes.values():
        if write.status != OK:
            continue
        compacted = run.is_compacted(write.at[0])
        committed = run.outcome(write.txn) is OperationOutcome.COMMITTED
        if committed and not newest.accounts_for(write) and not _is_torn(run, newest, write.txn):
            yield _missing(run, write, "read_committed")
        elif not compacted and write.value not in there.get(write.at, ()):
            yield _missing(run, write, "read_uncommitted")


def nothing_torn(run: Run) -> Iterator[Anomaly]:
    """C7: a transaction is visible as a whole or not at all, including its offsets."""
    if not run.has_final_reads:
        return
    newest = _Newest(run)
    ends = _last_offsets(run)
    for txn in run.txns.values():
        if run.outcome(txn.name) is not OperationOutcome.COMMITTED:
            continue
        missing = [each for each in txn.writes if not newest.accounts_for(each)]
        if missing and (len(missing) < len(txn.writes) or txn.name in run.shown):
            values = ", ".join(write.value for write in missing[:5])
            text = f"{txn.name} is visible without {values}"
            yield Anomaly("C7", "torn", text, missing[0].at, run.offsets.get(missing[0].value))
        if len(missing) < len(txn.writes):
            yield from _without_offsets(run, txn, ends)


def _without_offsets(
    run: Run, txn: Txn, ends: dict[tuple[str, Partition], Observation]
) -> Iterator[Anomaly]:
    for commit in txn.commits:
        for at, offset in commit.offsets.items():
            # If the group's last offset was not read, it cannot be checked.
            last = ends.get((commit.group, at))
            if last is not None and last.offset < offset and not _is_later(run, last.txn, txn):
                text = f"{txn.name} is visible, its offset {offset} of {commit.group} is not: "
                yield Anomaly("C7", "torn", f"{text}{last.offset}", at)


def _is_later(run: Run, name: str | None, txn: Txn) -> bool:
    """Whether a transaction came after `txn`, so that it may have set an offset back."""
    if name is None or name == txn.name or name not in run.txns:
        return False
    return (run.txns[name].ending or 0) > (txn.ending or 0)


def balanced(run: Run) -> Iterator[Anomaly]:
    """C7 for W3: while no transaction is open, the amounts that a reader has seen sum to zero."""
    lines = iter(run.reads)
    read = next(lines, None)
    sums: dict[str, int] = {}
    for line, reader in run.snapshots:
        while read is not None and read.line < line:
            amounts = (run.writes[value].amount for _, value in read.records if value in run.writes)
            sums[read.reader] = sums.get(read.reader, 0) + sum(amounts)
            read = next(lines, None)
        if sums.get(reader):
            yield Anomaly("C7", "unbalanced", f"{reader} sees {sums[reader]} in all")


class _Newest:
    """The records that compaction must keep: for each key the last that was not aborted."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._visible = {value for _, _, value in run.finally_visible()}
        self._last: dict[tuple[Partition, str | None], int] = {}
        for write in run.writes.values():
            offset = run.offsets.get(write.value)
            if offset is None or not run.is_compacted(write.at[0]):
                continue
            if run.outcome(write.txn) is not OperationOutcome.ABORTED:
                key = write.at, write.key
                self._last[key] = max(self._last.get(key, -1), offset)

    def accounts_for(self, write: Write) -> bool:
        """Whether a committed write is visible, or compaction was allowed to remove it."""
        if write.value in self._visible:
            return True
        if not self._run.is_compacted(write.at[0]):
            return False
        return self._last.get((write.at, write.key), -1) > self._run.offsets.get(write.value, -1)


def _is_torn(run: Run, newest: _Newest, txn: str | None) -> bool:
    """Whether another part of the transaction is visible: then it is torn, not lost."""
    if txn is None:
        return False
    return txn in run.shown or any(newest.accounts_for(w) for w in run.txns[txn].writes)


def _missing(run: Run, write: Write, reader: str) -> Anomaly:
    offset = run.offsets.get(write.value, -1)
    passed = offset < run.highest_read.get(write.at, -1)
    name, check = ("lost-write", "C3") if passed else ("unseen", "C4")
    text = f"{write.value} was acknowledged, but no {reader} reader finds it"
    return Anomaly(check, name, text, write.at, offset)


def _last_offsets(run: Run) -> dict[tuple[str, Partition], Observation]:
    return {(seen.group, seen.at): seen for seen in run.observations}
